//! The table of this host's interfaces in a running process: it follows the kernel's changes and is saved in a file.

use super::{
    Accounts, CapError, Client, Direction, UsableInterface,
    caps::Permission,
    faults::Faults,
    passage::Passage,
    probe::{COST, ProbeServer, probe},
    settings::{Settings, present},
    stored_table::StoredTable,
    table::{Assignment, Table},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::IpAddr,
    num::NonZeroU32,
    path::PathBuf,
    sync::{Arc, OnceLock},
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

/// How often moved bytes become an estimate.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// How often the interfaces are listed again although the kernel reported no change.
const LOOK: Duration = Duration::from_secs(10);

/// Ticks between the checks whether a new month has begun for a cap that was used up.
const ASK_AGAIN: u64 = 60;

/// Within this time a connection that its program has closed is known to be closed. The program's next connection,
/// which has just been accepted, may be seen before.
const SETTLES: Duration = Duration::from_millis(20);

/// An interface without news for this long is probed, and not more often.
pub(super) const PROBED_EVERY: Duration = Duration::from_secs(30 * 60);

/// How often an interface is sought that should be probed.
const PROBE_LOOK: Duration = Duration::from_secs(1);

/// Why a channel without a bond cannot be opened.
const NO_INTERFACE: &str = "the settings leave no interface that is up and may be used: see \
                            `thalweg interfaces status`";

/// How often new counts are added to the file: a crash loses what came since.
const SAVE: Duration = Duration::from_secs(5);

/// This host's interfaces, for all that open connections; cheap to clone.
#[derive(Clone)]
pub struct Uplinks(pub(super) Arc<Inner>);

pub(super) struct Inner {
    table: Mutex<Table>,
    began: Instant,
    clock: WallClock,
    pub(super) file: Option<PathBuf>,
    pub(super) paces: RateLimits,
    /// Notified when an allotment may be wanted.
    pub(super) wanted: Notify,
    /// Notified when the file has answered.
    pub(super) granted: Notify,
    pub(super) faults: Faults,
    /// The interfaces as the kernel last listed them.
    found: Mutex<Vec<Interface>>,
    /// Notified when they, or the settings, change.
    changed: Notify,
    prober: Prober,
    /// Bytes by purpose, for the whole process.
    budget: OnceLock<Arc<Budget>>,
}

/// Where a connection is to go.
#[derive(Debug)]
pub enum Lanes {
    /// As the kernel sends it.
    Free,
    /// By these interfaces, each later one if those before fail.
    By {
        /// Is told what becomes of the connection.
        passage: Passage,
        /// At least one.
        interfaces: Vec<Lane>,
        /// The interface for the legs to relays. `None`: the kernel's own choice, if that is allowed and has no cap or
        /// limit.
        relays: Option<NonZeroU32>,
        /// Whether the kernel's own choice is tried if none of them works, because the settings leave nothing out.
        or_free: bool,
    },
    /// Nowhere: the user's settings leave no interface.
    Nowhere,
}

/// One interface that a connection may go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub interface: NonZeroU32,
    /// Bytes that the server may send ahead of the reader; `None`: as the kernel decides.
    pub ahead: Option<usize>,
    /// Whether it is only used if those before fail: it is in a lower tier, or in doubt.
    pub is_last: bool,
}

impl fmt::Debug for Uplinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Uplinks").field(&self.0.file).finish()
    }
}

impl Uplinks {
    /// Creates the table with these settings, and lists the interfaces. What is known is kept in the file, if one is
    /// given.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged; it holds the bytes that count against caps.
    pub fn open(settings: Settings, file: Option<PathBuf>) -> io::Result<Self> {
        let kept = file.as_deref().map(StoredTable::open).transpose()?.unwrap_or_default();
        Ok(Self::with(settings, kept, file))
    }

    /// As [`Self::open`], but nothing is kept.
    pub fn without_file(settings: Settings) -> Self {
        Self::with(settings, StoredTable::default(), None)
    }

    fn with(settings: Settings, kept: StoredTable, file: Option<PathBuf>) -> Self {
        let table = Mutex::new(Table::new(settings, kept, Time::ZERO));
        let clock = WallClock::default();
        let uplinks = Self(Arc::new(Inner {
            table,
            began: Instant::now(),
            clock,
            file,
            paces: RateLimits::default(),
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

    /// The table, to show or change it.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock()
    }

    pub(super) fn prober(&self) -> &Prober {
        &self.0.prober
    }

    /// Sets the budget of the process, to which probes and second copies are charged. Only the first call counts, and
    /// only before anything was charged.
    pub fn set_budget(&self, budget: Arc<Budget>) {
        _ = self.0.budget.set(budget);
    }

    pub(super) fn budget(&self) -> &Budget {
        self.0.budget.get_or_init(Arc::default)
    }

    /// This many bytes of content went by the interface of this name, and by another one as well: a bond's second
    /// copies. They are charged to the budget; caps and limits count them with everything that a connection moves.
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

    /// The time of the table's clock.
    pub fn now(&self) -> Time {
        Time::ZERO + self.0.began.elapsed()
    }

    /// The date by the system's clock.
    pub fn today(&self) -> WallTime {
        self.0.clock.now()
    }

    /// Lists the interfaces. If the kernel does not tell them, the known ones stay.
    pub fn look(&self) {
        let found = match interfaces() {
            Ok(found) => found,
            Err(why) => {
                let why = format!("cannot list the interfaces: {why}; the known ones stay in use");
                return self.0.faults.begin("look", why);
            }
        };
        self.0.faults.end("look");
        {
            let mut table = self.table();
            let present = present(&found, table.settings());
            table.follow(present, self.now(), self.today());
        }
        let before = {
            let mut known = self.0.found.lock();
            std::mem::replace(&mut *known, found.clone())
        };
        if before != found {
            self.0.changed.notify_waiters();
        }
    }

    /// The interfaces as the kernel last listed them, in its order of preference.
    pub(super) fn found(&self) -> Vec<Interface> {
        self.0.found.lock().clone()
    }

    /// Has all users of interfaces look at them again.
    pub(super) fn notify_changed(&self) {
        self.0.changed.notify_waiters();
    }

    /// Waits until the interfaces or the settings change.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// The interfaces of a bond's links now, in the kernel's order of preference, given that it reaches nothing by
    /// those in `fails` (kernel indices). Rules do not count here: they are for single programs, whose streams a bond
    /// carries together.
    pub fn bond_interfaces(&self, fails: &BTreeSet<u32>) -> Vec<Interface> {
        let allowed = self.table().link_interfaces(fails, self.now(), self.today());
        let mut found = self.found();
        found.retain(|interface| allowed.contains(&interface.index.get()));
        found
    }

    /// How many interfaces bonds have, including those that wait for others to fail.
    pub fn count_bond_interfaces(&self) -> usize {
        self.table().count_link_interfaces(self.today())
    }

    /// Assigns interfaces to a connection of this program to `to`.
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
            self.table().record_near(application, &to.host.to_string(), self.now());
            return Lanes::Free;
        }
        let host = to.host.to_string();
        if self.table().would_leave(&application, &host, self.now(), self.today()) {
            sleep(SETTLES).await;
        }
        let (now, today) = (self.now(), self.today());
        let mut table = self.table();
        match table.assign(application, &host, now, today) {
            Assignment::Free => Lanes::Free,
            Assignment::Nowhere => Lanes::Nowhere,
            Assignment::By(id, order) => {
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

    /// Follows the kernel, and saves what is learnt; never returns. `note` is told each fault once.
    pub async fn keep(&self, note: impl Fn(String)) {
        tokio::join!(
            self.follow(),
            self.tick(),
            self.allot(),
            self.probe_regularly(),
            self.save_regularly(),
            self.0.faults.report_to(note),
        );
    }

    async fn follow(&self) {
        let deaf = |why: io::Error| {
            let why = format!(
                "cannot watch the interfaces for changes, so they are listed every second: {why}"
            );
            self.0.faults.begin("changes", why);
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

    /// Changes the settings, which apply to connections made from now on.
    ///
    /// # Errors
    /// Why the settings stay as they are.
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

/// Payment for traffic: takes allotments of caps, and waits for rate limits.
impl Uplinks {
    /// Takes allotments of caps when they are wanted; never returns.
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
                    let got = spawn_blocking(move || StoredTable::allot(&at, &asked, &of)).await;
                    let got = got.unwrap_or_else(|why| Err(io::Error::other(why)));
                    let got = got.map_err(|why| format!("{}: {why}", file.display()));
                    let is_answered = got.is_ok();
                    self.table().allotted(&name, &of, got);
                    self.0.granted.notify_waiters();
                    self.report_account(&name);
                    if !is_answered {
                        sleep(TICK).await;
                    }
                }
            }
            self.0.granted.notify_waiters();
        }
    }

    /// Reports when the bytes of an interface can no longer be counted, or can be again.
    fn report_account(&self, name: &str) {
        let fault = self.table().fault(name).map(str::to_owned);
        let what = format!("account {name}");
        match fault {
            Some(_) => self.0.faults.begin(&what, self.cap_error(name).to_string()),
            None => self.0.faults.end(&what),
        }
    }

    /// This many bytes went by an interface. If that was too early, the next call of [`Self::wait_to_move`] waits.
    pub(super) fn charge(&self, name: &str, bytes: u64) {
        let policy = self.table().settings().policy(name);
        if policy.cap.is_some() {
            self.0.wanted.notify_one();
        }
        let mut buckets = self.0.paces.0.lock();
        let Some(rate) = policy.rate_limit else {
            buckets.remove(name);
            return;
        };
        let now = Instant::now();
        let new =
            || RateLimitState { rate, bucket: Bucket::new(rate, THROTTLED_TURN, now), until: now };
        let pacing = buckets.entry(name.to_owned()).or_insert_with(new);
        if pacing.rate != rate {
            pacing.rate = rate;
            pacing.bucket.set_rate(rate, now);
        }
        // A day is longer than any wait.
        let wait = pacing.bucket.take(bytes, now).min(Duration::from_secs(86_400));
        pacing.until = now + wait;
    }

    /// This many bytes more, including headers, went by an interface. This is for its cap alone: its rate limit is
    /// charged when bytes are moved.
    pub(super) fn counted(&self, name: &str, bytes: u64) {
        if bytes > 0 {
            self.table().carried(name, bytes, self.today());
            self.charge(name, 0);
        }
    }

    /// Whether the interface has a cap or a limit to wait for.
    pub fn is_limited(&self, name: &str) -> bool {
        let policy = self.table().settings().policy(name);
        policy.cap.is_some() || policy.rate_limit.is_some()
    }

    /// Why an interface may move nothing more, if so.
    pub fn is_over(&self, name: &str) -> Option<CapError> {
        let is_over = self.is_limited(name)
            && matches!(self.table().permission(name), Permission::UsedUp | Permission::Fault);
        is_over.then(|| self.cap_error(name))
    }

    /// Waits until an interface may move more.
    ///
    /// # Errors
    /// Its cap is used up, or cannot be enforced.
    pub async fn wait_to_move(&self, name: &str) -> Result<(), CapError> {
        loop {
            let mut granted = std::pin::pin!(self.0.granted.notified());
            granted.as_mut().enable();
            let may = {
                let mut table = self.table();
                let may = table.permission(name);
                if may == Permission::Wait {
                    table.await_more(name);
                }
                may
            };
            match may {
                Permission::Granted => break,
                Permission::UsedUp | Permission::Fault => return Err(self.cap_error(name)),
                Permission::Wait => {
                    self.0.wanted.notify_one();
                    granted.await;
                }
            }
        }
        let until = {
            let buckets = self.0.paces.0.lock();
            buckets.get(name).map(|pacing| pacing.until)
        };
        if let Some(until) = until.filter(|until| *until > Instant::now()) {
            sleep_until(until.into()).await;
        }
        Ok(())
    }

    /// Whether an interface may move more at once.
    pub(super) fn may_move_now(&self, name: &str) -> bool {
        let buckets = self.0.paces.0.lock();
        let is_paced = buckets.get(name).is_some_and(|pacing| pacing.until > Instant::now());
        drop(buckets);
        !is_paced && self.table().permission(name) == Permission::Granted
    }

    /// Why nothing more may move by an interface.
    pub(super) fn cap_error(&self, name: &str) -> CapError {
        let table = self.table();
        let cap = table.settings().policy(name).cap;
        let (bytes, reset_day) = cap.map_or((0, 1), |cap| (cap.bytes, cap.reset_day));
        let (interface, cap) = (name.to_owned(), ByteSize::from_bytes(bytes));
        match table.fault(name) {
            Some(why) => CapError::Uncounted { interface, cap, why: why.to_owned() },
            None => CapError::UsedUp { interface, cap, reset_day },
        }
    }
}

/// When interfaces are probed, and what that may cost.
impl Uplinks {
    /// Sets the dialler of probes. Only the first call counts; without a dialler nothing is probed.
    pub fn set_probe_dialer(&self, dialer: Dialer) {
        _ = self.prober().dialer.set(dialer);
    }

    /// Bytes that all processes spent on probes today.
    pub fn spent_on_probes(&self) -> ByteSize {
        let today = self.day();
        ByteSize::from_bytes(self.table().kept().spent_on_probes(today))
    }

    fn day(&self) -> u32 {
        Period::at(self.today(), 1).today
    }

    /// Probes interfaces of which nothing is known; never returns.
    pub(super) async fn probe_regularly(&self) {
        let mut next = 0_usize;
        loop {
            sleep(PROBE_LOOK).await;
            let Some(dialer) = self.prober().dialer.get() else { continue };
            let Some((interface, server)) = self.next_probe(next) else { continue };
            next = next.wrapping_add(1);
            if self.pay_for(&interface).await
                && let Some(false) = self.probe_one(dialer, &interface, &server).await
            {
                self.ask_again_elsewhere(dialer, &interface, &server).await;
            }
        }
    }

    /// An interface to be probed, and the server to probe it with.
    fn next_probe(&self, turn: usize) -> Option<(UsableInterface, ProbeServer)> {
        let (now, today) = (self.now(), self.today());
        let mut table = self.table();
        let servers = &table.settings().probing.servers;
        let server = servers.get(turn % servers.len().max(1))?.clone();
        let interface = table.interface_to_probe(now, today)?;
        table.begin_probe(&interface.name, now);
        Some((interface, server))
    }

    /// Takes the cost of a probe from the day's budget, which all processes share. If the budget does not allow it, the
    /// interface's status says so.
    async fn pay_for(&self, interface: &UsableInterface) -> bool {
        let (today, most) = (self.day(), self.table().settings().probing.per_day.as_bytes());
        let cost = (COST.as_bytes(), most);
        let paid = match self.0.file.clone() {
            None => Ok(self.table().pay_for_probe(today, cost)),
            Some(file) => {
                let paying =
                    spawn_blocking(move || StoredTable::pay_for_probe_in(&file, today, cost));
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
            Ok(false) => "today's budget is used up".to_owned(),
            Err(why) => self.unsaved(&why),
        };
        self.table().record_probe(
            interface,
            Err(format!("not probed: {why}")),
            (self.now(), self.today()),
        );
        false
    }

    /// A probe failed. The interface is left out if the server answers by another interface, or if another server does
    /// not answer by this one either. If the server does not answer by any interface, the server is at fault.
    async fn ask_again_elsewhere(
        &self,
        dialer: &Dialer,
        failed: &UsableInterface,
        server: &ProbeServer,
    ) {
        let (now, today) = (self.now(), self.today());
        let (by, at) = {
            let mut table = self.table();
            let servers = &table.settings().probing.servers;
            let Some((by, at)) = table.witness(failed, server, servers, today) else { return };
            table.begin_probe(&by.name, now);
            (by, at)
        };
        if !self.pay_for(&by).await {
            return;
        }
        let answers = self.probe_one(dialer, &by, &at).await;
        if answers.is_some_and(|answers| answers == (by != *failed)) {
            self.table().exclude_unreached(failed, self.now());
        }
    }

    /// Whether the probe was answered; `None`: it could not be sent.
    async fn probe_one(
        &self,
        dialer: &Dialer,
        interface: &UsableInterface,
        server: &ProbeServer,
    ) -> Option<bool> {
        let index = NonZeroU32::new(interface.index)?;
        self.wait_to_move(&interface.name).await.ok()?;
        // The connection's bytes count, whatever comes of the probe.
        let dialer = dialer.clone().with_bookkeeper(Arc::new(Accounts::new(self.clone())));
        let told = probe(&dialer, index, server).await.map_err(|why| why.to_string());
        let is_answered = told.is_ok();
        self.table().record_probe(interface, told, (self.now(), self.today()));
        Some(is_answered)
    }
}

/// Channels that are neither links of bonds nor programs' connections, and deadlines.
impl Uplinks {
    /// The name of the interface with this index, if there is one.
    pub(super) fn name_of(&self, index: NonZeroU32) -> Option<String> {
        self.found().into_iter().find(|interface| interface.index == index).map(|found| found.name)
    }

    /// The interface of a connection to these addresses that is neither a bond's link nor a program's. It is the
    /// kernel's own choice (`None`) if that may be used and has no cap or limit; otherwise another one without cap and
    /// limit; otherwise the first that may be used, whose cap and limit then count.
    ///
    /// # Errors
    /// No interface may be used.
    pub fn plain_interface(&self, to: &[IpAddr]) -> io::Result<Option<NonZeroU32>> {
        let (allowed, present) = {
            let table = self.table();
            (table.plain_interfaces(self.now(), self.today()), table.indices())
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
            // It leads only to its own network, and the settings say nothing about it.
            return Ok(None);
        }
        found.retain(|interface| allowed.contains(&interface.index.get()));
        let mut free = found.iter().filter(|interface| !self.is_limited(&interface.name));
        if free.clone().any(|interface| interface.index == own.index) {
            return Ok(None);
        }
        let by = free.next().or(found.first()).ok_or_else(|| io::Error::other(NO_INTERFACE))?;
        Ok(Some(by.index))
    }

    /// Whether the cap of an interface leaves room for a link of a bond, new or existing.
    pub fn has_room(&self, name: &str) -> bool {
        let today = self.today();
        self.table().has_left_for_link(name, today)
    }

    /// Everything that bonds carry must arrive within this time, at the least cost. Interfaces with a price are used as
    /// late and as little as that allows, given the progress reported by [`Self::record_progress`].
    pub fn set_deadline(&self, within: Duration, flow: Direction) {
        let (until, today) = (self.now() + within, self.today());
        self.table().set_deadline(until, flow, today);
        self.notify_changed();
    }

    /// Since then this many bytes have arrived, and this many are missing.
    pub fn record_progress(&self, done: u64, missing: u64) {
        let now = self.now();
        let has_changed = self.table().record_progress(done, missing, now);
        if has_changed {
            self.notify_changed();
        }
    }
}

/// Saving what is learnt of interfaces, every few seconds and at the end.
impl Uplinks {
    /// Gives back allotted bytes that were not moved, and saves. Call it when nothing is moved any more.
    ///
    /// # Errors
    /// As [`Self::save`].
    pub fn end(&self) -> io::Result<()> {
        self.table().give_back_allotments(self.today());
        self.save()
    }

    pub(super) async fn save_regularly(&self) {
        loop {
            sleep(SAVE).await;
            let uplinks = self.clone();
            let saved = spawn_blocking(move || uplinks.save()).await;
            match saved.unwrap_or_else(|why| Err(io::Error::other(why))) {
                Ok(()) => self.0.faults.end("save"),
                Err(why) => self.0.faults.begin("save", self.unsaved(&why)),
            }
        }
    }

    /// The message if the file cannot be saved.
    pub fn unsaved(&self, why: &io::Error) -> String {
        let file = self.0.file.as_deref().unwrap_or_else(|| "".as_ref());
        format!(
            "cannot save the statistics of interfaces and programs to {}: {why}",
            file.display()
        )
    }

    /// Adds new counts to the file, and takes over those of other processes. Blocks until the file is synced.
    ///
    /// # Errors
    /// Errors of the system; then it is tried again the next time.
    pub fn save(&self) -> io::Result<()> {
        let Some(file) = &self.0.file else { return Ok(()) };
        let addition = self.table().take_addition();
        if addition.is_empty() {
            return Ok(());
        }
        match StoredTable::exchange(file, &addition) {
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

/// The state of rate limits, by interface name.
#[derive(Default)]
pub(super) struct RateLimits(Mutex<BTreeMap<String, RateLimitState>>);

struct RateLimitState {
    rate: Rate,
    bucket: Bucket,
    until: Instant,
}

/// What interfaces are probed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeSettings {
    /// Files, one for each probe in turn; without any, nothing is probed.
    pub servers: Vec<ProbeServer>,
    /// The most that probes may cost in a day (UTC), over all interfaces and processes.
    pub per_day: ByteSize,
}

impl Default for ProbeSettings {
    fn default() -> Self {
        Self { servers: Vec::new(), per_day: ByteSize::from_bytes(10_000_000) }
    }
}

/// The dialler of probes. The budget holds what this process spends on them; the file holds what all processes spent
/// today.
#[derive(Debug, Default)]
pub(super) struct Prober {
    dialer: OnceLock<Dialer>,
}
