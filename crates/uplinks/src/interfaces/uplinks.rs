//! The interfaces of this host as its programs' connections use them: the table, followed by what
//! the kernel says, and kept in a file.

use super::{
    Accounts, Client, Flow, NoMore, Present,
    caps::May,
    faults::Faults,
    kept::Kept,
    passage::Passage,
    probe::{COST, ProbeServer, probe},
    settings::{Settings, present},
    table::{Assigned, Table},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::IpAddr,
    num::NonZeroU32,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use thalweg_base::{
    budget::{Budget, Purpose, Scope},
    clock::WallClock,
    token_bucket::Bucket,
};
use thalweg_bond::{Application, Period};
use thalweg_net::{Changes, Dialer, Interface, interface_for, interfaces, pump::THROTTLED_TURN};
use thalweg_units::{ByteSize, Rate, Time, WallTime};
use thalweg_wire::Destination;
use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep, sleep_until},
};

/// How often what was moved becomes an estimate.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// Interfaces are looked at again so often even if nothing was heard, and where nothing can be.
const LOOK: Duration = Duration::from_secs(10);

/// Where a cap was used up it is asked so often whether a month has begun.
const ASK_AGAIN: u64 = 60;

/// A connection that its program has closed is known to be so after this; the next one of the program, which has just been
/// accepted, may be seen before.
const SETTLES: Duration = Duration::from_millis(20);

/// An interface of which nothing was heard for so long is probed, and not more often.
pub(super) const PROBED_EVERY: Duration = Duration::from_secs(30 * 60);

/// Between looks whether there is one.
const PROBE_LOOK: Duration = Duration::from_secs(1);

/// Why there is no plain way.
const NO_INTERFACE: &str = "the settings leave no interface that is up and may be used: see \
                            `thalweg interfaces status`";

/// How often what came is added to the file: as long ago a crash forgets.
const SAVE: Duration = Duration::from_secs(5);

/// This host's interfaces, for whoever opens connections; cheap to clone.
#[derive(Clone)]
pub struct Uplinks(pub(super) Arc<Inner>);

pub(super) struct Inner {
    table: Mutex<Table>,
    began: Instant,
    clock: WallClock,
    pub(super) file: Option<PathBuf>,
    pub(super) paces: Paces,
    /// An allotment may be wanted.
    pub(super) wanted: Notify,
    /// The file has answered.
    pub(super) granted: Notify,
    /// What goes wrong.
    pub(super) faults: Faults,
    /// The interfaces as the kernel has them.
    found: Mutex<Vec<Interface>>,
    /// They, or the settings, are others than before.
    changed: Notify,
    prober: Prober,
    /// Bytes by purpose, of the whole process.
    budget: OnceLock<Arc<Budget>>,
}

/// Where a connection is to go.
#[derive(Debug)]
pub enum Lanes {
    /// As the kernel sends it.
    Free,
    /// By these interfaces, each later one if those before do not bring it about.
    By {
        /// To be told of what becomes of it.
        passage: Passage,
        /// At least one.
        interfaces: Vec<Lane>,
        /// What the legs to relays leave by: the kernel's own choice, unless that is not allowed, or
        /// has a cap or a limit.
        relays: Option<NonZeroU32>,
        /// Whether, if none of them does, the kernel's own choice is tried: the settings leave
        /// nothing out.
        or_free: bool,
    },
    /// Nowhere: the user's settings leave no interface.
    Nowhere,
}

/// One interface that a connection may go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The interface.
    pub interface: NonZeroU32,
    /// What the server may send ahead of who reads, bytes; `None`: as the kernel has it.
    pub ahead: Option<usize>,
    /// Whether it is there only for what does not come about by those before: a lower tier, or one
    /// that is in doubt.
    pub is_last: bool,
}

impl fmt::Debug for Uplinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Uplinks").field(&self.0.file).finish()
    }
}

impl Uplinks {
    /// By these settings; what is known is kept in the file, if one is given. Looks at the
    /// interfaces.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged: it holds what was spent of caps.
    pub fn open(settings: Settings, file: Option<PathBuf>) -> io::Result<Self> {
        let kept = file.as_deref().map(Kept::open).transpose()?.unwrap_or_default();
        Ok(Self::with(settings, kept, file))
    }

    /// The same, of which nothing is kept.
    pub fn unkept(settings: Settings) -> Self {
        Self::with(settings, Kept::default(), None)
    }

    fn with(settings: Settings, kept: Kept, file: Option<PathBuf>) -> Self {
        let table = Mutex::new(Table::new(settings, kept, Time::ZERO));
        let clock = WallClock::default();
        let uplinks = Self(Arc::new(Inner {
            table,
            began: Instant::now(),
            clock,
            file,
            paces: Paces::default(),
            wanted: Notify::new(),
            granted: Notify::new(),
            faults: Faults::default(),
            found: Mutex::default(),
            changed: Notify::new(),
            prober: Prober::default(),
            budget: OnceLock::new(),
        }));
        uplinks.look();
        uplinks
    }

    /// The table, for who shows or sets it.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn prober(&self) -> &Prober {
        &self.0.prober
    }

    /// Probes and second copies are charged to this, the process's; only the first one counts, and only before
    /// anything was charged.
    pub fn charge_to(&self, budget: Arc<Budget>) {
        _ = self.0.budget.set(budget);
    }

    pub(super) fn budget(&self) -> &Budget {
        self.0.budget.get_or_init(Arc::default)
    }

    /// So many bytes of content went by the interface of this name that went or go by another one as well: a bond's second
    /// copies. They are charged to the budget; caps and limits count them with all that a connection moves.
    pub fn sent_twice(&self, name: &str, bytes: u64) {
        let index = self.table().index_of(name);
        if let Some(index) = index.and_then(NonZeroU32::new) {
            self.spend_on(Purpose::Duplicate, index, ByteSize::from_bytes(bytes));
        }
    }

    pub(super) fn spend_on(&self, purpose: Purpose, interface: NonZeroU32, bytes: ByteSize) {
        let scope = Scope { interface: Some(interface), ..Scope::purpose(purpose) };
        self.budget().charge(scope, bytes);
    }

    /// The time of the table.
    pub fn now(&self) -> Time {
        Time::ZERO + self.0.began.elapsed()
    }

    /// The date.
    pub fn today(&self) -> WallTime {
        self.0.clock.now()
    }

    /// Reads what interfaces there are; where the kernel does not say, those known stay.
    pub fn look(&self) {
        let found = match interfaces() {
            Ok(found) => found,
            Err(why) => {
                let why = format!("the kernel does not list its interfaces: {why}");
                return self.0.faults.begins("look", why);
            }
        };
        self.0.faults.ends("look");
        {
            let mut table = self.table();
            let present = present(&found, table.settings());
            table.follow(present, self.now(), self.today());
        }
        let before = {
            let mut known = self.0.found.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *known, found.clone())
        };
        if before != found {
            self.0.changed.notify_waiters();
        }
    }

    /// The interfaces as the kernel had them last, in its order of preference.
    pub(super) fn found(&self) -> Vec<Interface> {
        self.0.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Who uses interfaces is to look at them again.
    pub(super) fn tell_changed(&self) {
        self.0.changed.notify_waiters();
    }

    /// Waits until the interfaces or the settings change.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// The interfaces that a bond's links go by now, in the kernel's order of preference, where it reaches
    /// nobody by those of `fails` (the kernel's indices). Rules are for single programs, whose streams a
    /// bond carries together, so they do not count here.
    pub fn for_bonds(&self, fails: &BTreeSet<u32>) -> Vec<Interface> {
        let allowed = self.table().for_links(fails, self.now(), self.today());
        let mut found = self.found();
        found.retain(|interface| allowed.contains(&interface.index.get()));
        found
    }

    /// How many interfaces bonds have, with those that wait for others to fail.
    pub fn count_for_bonds(&self) -> usize {
        self.table().count_for_links(self.today())
    }

    /// Where a connection to `to` goes that this program asked for.
    pub async fn assign(&self, client: &Client, to: &Destination) -> Lanes {
        let (has_choice, is_left) = {
            let table = self.table();
            (table.has_choice(to), table.is_left_as_near(to))
        };
        if !has_choice && !is_left {
            return Lanes::Free;
        }
        let application = Application { process: client.program().await, port: to.port };
        if is_left {
            self.table().left_as_near(application, &to.host.to_string(), self.now());
            return Lanes::Free;
        }
        let host = to.host.to_string();
        if self.table().lets_go(&application, &host, self.now(), self.today()) {
            sleep(SETTLES).await;
        }
        let (now, today) = (self.now(), self.today());
        let mut table = self.table();
        match table.assign(application, &host, now, today) {
            Assigned::Free => Lanes::Free,
            Assigned::Nowhere => Lanes::Nowhere,
            Assigned::By(id, order) => {
                let or_free = table.settings().is_plain();
                let relays = table.relays_leave_by(&order).and_then(NonZeroU32::new);
                drop(table);
                let lane = |(index, is_last): (u32, bool)| {
                    let ahead = self.table().ahead(index).map(|bytes| bytes as usize);
                    Some(Lane { interface: NonZeroU32::new(index)?, ahead, is_last })
                };
                let interfaces = order.into_iter().filter_map(lane).collect();
                Lanes::By { passage: Passage::new(self.clone(), id), interfaces, relays, or_free }
            }
        }
    }

    /// Follows the kernel, and keeps what is learnt; never ends. `note` hears what goes wrong, once each time.
    pub async fn keep(&self, note: impl Fn(String)) {
        tokio::join!(
            self.follow(),
            self.tick(),
            self.allot(),
            self.probe_again_and_again(),
            self.save_again_and_again(),
            self.0.faults.tell(note),
        );
    }

    async fn follow(&self) {
        let deaf = |why: io::Error| {
            let why = format!(
                "the kernel does not report changes, so it is asked each second: \
                               {why}"
            );
            self.0.faults.begins("changes", why);
        };
        let mut changes = Changes::watch().map_err(deaf).ok();
        loop {
            match &mut changes {
                Some(heard) => tokio::select! {
                    heard = heard.next() => if let Err(why) = heard {
                        deaf(why);
                        changes = None;
                    },
                    () = sleep(LOOK) => {}
                },
                None => sleep(TICK).await,
            }
            self.look();
        }
    }

    async fn tick(&self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for count in 1_u64.. {
            ticks.tick().await;
            let mut table = self.table();
            table.tick(self.now(), self.today());
            table.give_back_idle_allotments(self.today());
            if count % ASK_AGAIN == 0 {
                table.ask_again();
            }
        }
    }

    /// Changes the settings; connections that are made from now on see the new ones.
    ///
    /// # Errors
    /// Why they stay as they are.
    pub(super) fn change(
        &self,
        to: impl FnOnce(&Settings) -> Result<Settings, String>,
    ) -> Result<(), String> {
        {
            let mut table = self.table();
            let settings = to(table.settings())?;
            if self.0.file.is_none()
                && settings.policies.values().any(|policy| policy.cap.is_some())
            {
                return Err("this process does not record usage, which a cap needs".to_owned());
            }
            table.allow(settings);
        }
        self.look();
        self.0.changed.notify_waiters();
        Ok(())
    }
}

/// What moves by interfaces is paid for: allotments of caps are taken, and rate limits are waited for.
impl Uplinks {
    /// Takes allotments of caps when they are wanted.
    pub(super) async fn allot(&self) {
        loop {
            let wish = self.table().wants_allotment(self.today());
            let Some((name, of)) = wish else {
                tokio::select! { () = self.0.wanted.notified() => {}, () = sleep(TICK) => {} }
                continue;
            };
            match self.0.file.clone() {
                None => self.table().allot_here(&name, &of),
                Some(file) => {
                    let (asked, at) = (name.clone(), file.clone());
                    let got = spawn_blocking(move || Kept::allot(&at, &asked, &of)).await;
                    let got = got.unwrap_or_else(|why| Err(io::Error::other(why)));
                    let got = got.map_err(|why| format!("{}: {why}", file.display()));
                    let is_answered = got.is_ok();
                    self.table().allotted(&name, &of, got);
                    self.0.granted.notify_waiters();
                    self.tell_of_account(&name);
                    if !is_answered {
                        sleep(TICK).await;
                    }
                }
            }
            self.0.granted.notify_waiters();
        }
    }

    /// Whether what goes by it can be counted is told when it changes.
    fn tell_of_account(&self, name: &str) {
        let fault = self.table().fault(name).map(str::to_owned);
        let what = format!("account {name}");
        match fault {
            Some(_) => self.0.faults.begins(&what, self.no_more(name).to_string()),
            None => self.0.faults.ends(&what),
        }
    }

    /// So many bytes went by an interface; they wait in [`Self::may`] for what they took too early.
    pub(super) fn charge(&self, name: &str, bytes: u64) {
        let policy = self.table().settings().policy(name);
        if policy.cap.is_some() {
            self.0.wanted.notify_one();
        }
        let mut buckets = self.0.paces.lock();
        let Some(rate) = policy.rate_limit else {
            buckets.remove(name);
            return;
        };
        let now = Instant::now();
        let new = || Pacing { rate, bucket: Bucket::new(rate, THROTTLED_TURN, now), until: now };
        let pacing = buckets.entry(name.to_owned()).or_insert_with(new);
        if pacing.rate != rate {
            pacing.rate = rate;
            pacing.bucket.set_rate(rate, now);
        }
        // A day is longer than anybody waits.
        let wait = pacing.bucket.take(bytes, now).min(Duration::from_secs(86_400));
        pacing.until = now + wait;
    }

    /// So many bytes more went by an interface, headers included, for its cap alone: what its rate limit goes by is
    /// charged as it is moved.
    pub(super) fn counted(&self, name: &str, bytes: u64) {
        if bytes > 0 {
            self.table().carried(name, bytes, self.today());
            self.charge(name, 0);
        }
    }

    /// Whether what moves by an interface has a cap or a limit to wait for.
    pub fn is_tolled(&self, name: &str) -> bool {
        let policy = self.table().settings().policy(name);
        policy.cap.is_some() || policy.rate_limit.is_some()
    }

    /// Why an interface may move nothing more, if so.
    pub fn is_over(&self, name: &str) -> Option<NoMore> {
        let is_over =
            self.is_tolled(name) && matches!(self.table().may(name), May::Over | May::Fault);
        is_over.then(|| self.no_more(name))
    }

    /// Waits until an interface may move more.
    ///
    /// # Errors
    /// Its cap is used up, or cannot be kept to.
    pub async fn may(&self, name: &str) -> Result<(), NoMore> {
        loop {
            let mut granted = std::pin::pin!(self.0.granted.notified());
            granted.as_mut().enable();
            let may = {
                let mut table = self.table();
                let may = table.may(name);
                if may == May::Wait {
                    table.await_more(name);
                }
                may
            };
            match may {
                May::Go => break,
                May::Over | May::Fault => return Err(self.no_more(name)),
                May::Wait => {
                    self.0.wanted.notify_one();
                    granted.await;
                }
            }
        }
        let until = {
            let buckets = self.0.paces.lock();
            buckets.get(name).map(|pacing| pacing.until)
        };
        if let Some(until) = until.filter(|until| *until > Instant::now()) {
            sleep_until(until.into()).await;
        }
        Ok(())
    }

    /// Whether it may move more at once.
    pub(super) fn may_now(&self, name: &str) -> bool {
        let buckets = self.0.paces.lock();
        let is_paced = buckets.get(name).is_some_and(|pacing| pacing.until > Instant::now());
        drop(buckets);
        !is_paced && self.table().may(name) == May::Go
    }

    /// Why nothing more goes by it.
    pub(super) fn no_more(&self, name: &str) -> NoMore {
        let table = self.table();
        let cap = table.settings().policy(name).cap;
        let (bytes, reset_day) = cap.map_or((0, 1), |cap| (cap.bytes, cap.reset_day));
        let (interface, cap) = (name.to_owned(), ByteSize::from_bytes(bytes));
        match table.fault(name) {
            Some(why) => NoMore::Uncounted { interface, cap, why: why.to_owned() },
            None => NoMore::UsedUp { interface, cap, reset_day },
        }
    }
}

/// When an interface is probed, and what it may cost.
impl Uplinks {
    /// Probes are made by this dialer; only the first one counts. Without one none are made.
    pub fn probe_by(&self, dialer: Dialer) {
        _ = self.prober().dialer.set(dialer);
    }

    /// What all processes spent on probes today.
    pub fn spent_on_probes(&self) -> ByteSize {
        let today = self.day();
        ByteSize::from_bytes(self.table().kept().spent_on_probes(today))
    }

    fn day(&self) -> u32 {
        Period::at(self.today(), 1).today
    }

    /// Probes interfaces of which nothing is known; never ends.
    pub(super) async fn probe_again_and_again(&self) {
        let mut next = 0_usize;
        loop {
            sleep(PROBE_LOOK).await;
            let Some(dialer) = self.prober().dialer.get() else { continue };
            let Some((interface, server)) = self.due(next) else { continue };
            next = next.wrapping_add(1);
            if self.pays_for(&interface).await
                && let Some(false) = self.probe_one(dialer, &interface, &server).await
            {
                self.ask_again_elsewhere(dialer, &interface, &server).await;
            }
        }
    }

    /// An interface to be probed, and with what.
    fn due(&self, turn: usize) -> Option<(Present, ProbeServer)> {
        let (now, today) = (self.now(), self.today());
        let mut table = self.table();
        let servers = &table.settings().probing.servers;
        let server = servers.get(turn % servers.len().max(1))?.clone();
        let interface = table.unknown(now, today)?;
        table.is_probed(&interface.name, now);
        Some((interface, server))
    }

    /// Takes what a probe costs from the day's budget, which all processes share; where that leaves it not, the
    /// interface's status says so.
    async fn pays_for(&self, interface: &Present) -> bool {
        let (today, most) = (self.day(), self.table().settings().probing.per_day.as_bytes());
        let cost = (COST.as_bytes(), most);
        let paid = match self.0.file.clone() {
            None => Ok(self.table().pay_for_probe(today, cost)),
            Some(file) => {
                let paying = spawn_blocking(move || Kept::pay_for_probe_in(&file, today, cost));
                let paid = paying.await.unwrap_or_else(|why| Err(io::Error::other(why)));
                paid.map(|(kept, is_paid)| {
                    self.table().renew(kept);
                    is_paid
                })
            }
        };
        let why = match paid {
            Ok(true) => {
                if let Some(index) = NonZeroU32::new(interface.index) {
                    self.spend_on(Purpose::Probe, index, COST);
                }
                return true;
            }
            Ok(false) => "the budget of this day is used up".to_owned(),
            Err(why) => self.unsaved(&why),
        };
        self.table().probed(
            interface,
            Err(format!("not probed: {why}")),
            (self.now(), self.today()),
        );
        false
    }

    /// A probe failed: the interface is left out if the server answers by another one, or another server does not answer
    /// either. What fails by all is the server's fault.
    async fn ask_again_elsewhere(&self, dialer: &Dialer, failed: &Present, server: &ProbeServer) {
        let (now, today) = (self.now(), self.today());
        let (by, at) = {
            let mut table = self.table();
            let servers = &table.settings().probing.servers;
            let Some((by, at)) = table.witness(failed, server, servers, today) else { return };
            table.is_probed(&by.name, now);
            (by, at)
        };
        if !self.pays_for(&by).await {
            return;
        }
        let answers = self.probe_one(dialer, &by, &at).await;
        if answers.is_some_and(|answers| answers == (by != *failed)) {
            self.table().is_to_blame(failed, self.now());
        }
    }

    /// Whether it was answered; `None`: it could not be sent.
    async fn probe_one(
        &self,
        dialer: &Dialer,
        interface: &Present,
        server: &ProbeServer,
    ) -> Option<bool> {
        let index = NonZeroU32::new(interface.index)?;
        self.may(&interface.name).await.ok()?;
        // Counted as the kernel counts it, whatever comes of it.
        let dialer = dialer.clone().booked_by(Arc::new(Accounts::new(self.clone())));
        let told = probe(&dialer, index, server).await.map_err(|why| why.to_string());
        let is_answered = told.is_ok();
        self.table().probed(interface, told, (self.now(), self.today()));
        Some(is_answered)
    }
}

/// What goes beside bonds and programs' connections, and times that are to be met.
impl Uplinks {
    /// The name of the interface with this index, if there is one.
    pub(super) fn name_of(&self, index: NonZeroU32) -> Option<String> {
        self.found().into_iter().find(|interface| interface.index == index).map(|found| found.name)
    }

    /// The interface of what is neither a bond's link nor a program's connection, towards these addresses: the
    /// kernel's own choice (`None`) if that may be used and has no cap or limit; else another one that has none; else
    /// the first that may be used, and then it counts.
    ///
    /// # Errors
    /// None may be used.
    pub fn plain_way(&self, to: &[IpAddr]) -> io::Result<Option<NonZeroU32>> {
        let (allowed, present) = {
            let table = self.table();
            (table.for_plain(self.now(), self.today()), table.indices())
        };
        let mut found = self.found();
        let asked = to.first().and_then(|ip| interface_for(*ip).ok());
        let own = match asked {
            Some(index) => found.iter().find(|interface| interface.index == index),
            None => found.first(),
        };
        let Some(own) = own.cloned() else { return Ok(None) };
        let is_named = self.table().settings().policies.contains_key(&own.name);
        if !is_named && !present.contains(&own.index.get()) {
            // It leads to its own network alone, of which nothing is said.
            return Ok(None);
        }
        found.retain(|interface| allowed.contains(&interface.index.get()));
        let mut free = found.iter().filter(|interface| !self.is_tolled(&interface.name));
        if free.clone().any(|interface| interface.index == own.index) {
            return Ok(None);
        }
        let by = free.next().or(found.first()).ok_or_else(|| io::Error::other(NO_INTERFACE))?;
        Ok(Some(by.index))
    }

    /// Whether the cap of an interface leaves room for one more link of a bond, or one that is there.
    pub fn has_room(&self, name: &str) -> bool {
        let today = self.today();
        self.table().has_left_for_link(name, today)
    }

    /// What bonds carry is to be there within this time, at the least cost: by interfaces with a price as late and as
    /// little as that allows, by [`Self::came`].
    pub fn meet(&self, within: Duration, flow: Flow) {
        let (until, today) = (self.now() + within, self.today());
        self.table().meet(until, flow, today);
        self.tell_changed();
    }

    /// So many bytes have come since then, and so many are missing.
    pub fn came(&self, done: u64, missing: u64) {
        let now = self.now();
        let has_changed = self.table().came(done, missing, now);
        if has_changed {
            self.tell_changed();
        }
    }
}

/// What is learnt of interfaces is kept in a file, every few seconds and at the end.
impl Uplinks {
    /// Gives back what was allotted and not moved, and saves; when nothing is moved any more.
    ///
    /// # Errors
    /// As [`Self::save`].
    pub fn end(&self) -> io::Result<()> {
        self.table().give_back_allotments(self.today());
        self.save()
    }

    pub(super) async fn save_again_and_again(&self) {
        loop {
            sleep(SAVE).await;
            let uplinks = self.clone();
            let saved = spawn_blocking(move || uplinks.save()).await;
            match saved.unwrap_or_else(|why| Err(io::Error::other(why))) {
                Ok(()) => self.0.faults.ends("save"),
                Err(why) => self.0.faults.begins("save", self.unsaved(&why)),
            }
        }
    }

    /// What to say when it cannot be kept.
    pub fn unsaved(&self, why: &io::Error) -> String {
        let file = self.0.file.as_deref().unwrap_or_else(|| "".as_ref());
        format!(
            "cannot save what was learnt of interfaces and programs in {}: {why}",
            file.display()
        )
    }

    /// Adds what came to the file, and takes in what other processes did; blocks until it is synced.
    ///
    /// # Errors
    /// The system's; then it is tried again the next time.
    pub fn save(&self) -> io::Result<()> {
        let Some(file) = &self.0.file else { return Ok(()) };
        let addition = self.table().take_addition();
        if addition.is_empty() {
            return Ok(());
        }
        match Kept::exchange(file, &addition) {
            Ok(kept) => {
                self.table().renew(kept);
                Ok(())
            }
            Err(why) => {
                self.table().give_back(addition);
                Err(why)
            }
        }
    }
}

/// Rate limits at work, by name.
#[derive(Default)]
pub(super) struct Paces(Mutex<BTreeMap<String, Pacing>>);

struct Pacing {
    rate: Rate,
    bucket: Bucket,
    until: Instant,
}

impl Paces {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Pacing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What interfaces are probed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probing {
    /// Files, of which each probe takes the next; none: nothing is probed.
    pub servers: Vec<ProbeServer>,
    /// The most that probes may cost in a day (UTC), over all interfaces and processes.
    pub per_day: ByteSize,
}

impl Default for Probing {
    fn default() -> Self {
        Self { servers: Vec::new(), per_day: ByteSize::from_bytes(10_000_000) }
    }
}

/// Who probes. What this process spends is in its budget; the day's limit is kept with what all spent.
#[derive(Debug, Default)]
pub(super) struct Prober {
    dialer: OnceLock<Dialer>,
}
