//! The interfaces of this host as its programs' connections use them: the table, followed by what
//! the kernel says, and kept in a file.

use super::{
    caps::May,
    kept::Kept,
    passage::Passage,
    present::present,
    probing::Prober,
    program_at,
    settings::Settings,
    table::{Assigned, Table},
    toll::UsedUp,
};
use crate::{mesh::WallClock, relay::Bucket};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    net::SocketAddr,
    num::NonZeroU32,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use thalweg_bond::Application;
use thalweg_net::{Changes, Interface, interfaces};
use thalweg_units::{ByteSize, Rate, Time, WallTime};
use thalweg_wire::Destination;
use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval, sleep, sleep_until},
};

/// How often what was moved becomes an estimate.
const TICK: Duration = Duration::from_secs(1);

/// How often what came is added to the file: as long ago a crash forgets.
const SAVE: Duration = Duration::from_secs(5);

/// Interfaces are looked at again so often even if nothing was heard, and where nothing can be.
const LOOK: Duration = Duration::from_secs(10);

/// Where a cap was used up it is asked so often whether a month has begun.
const ASK_AGAIN: u64 = 60;

/// This host's interfaces, for whoever opens connections; cheap to clone.
#[derive(Clone)]
pub struct Uplinks(Arc<Inner>);

struct Inner {
    table: Mutex<Table>,
    began: Instant,
    clock: WallClock,
    file: Option<PathBuf>,
    /// Rate limits at work, by name.
    buckets: Mutex<BTreeMap<String, Pacing>>,
    /// An allotment may be wanted.
    wanted: Notify,
    /// The file has answered.
    granted: Notify,
    /// The interfaces as the kernel has them.
    found: Mutex<Vec<Interface>>,
    /// They, or the settings, are others than before.
    changed: Notify,
    prober: Prober,
}

struct Pacing {
    rate: Rate,
    bucket: Bucket,
    until: Instant,
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
            buckets: Mutex::default(),
            wanted: Notify::new(),
            granted: Notify::new(),
            found: Mutex::default(),
            changed: Notify::new(),
            prober: Prober::default(),
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
        let Ok(found) = interfaces() else { return };
        {
            let mut table = self.table();
            let present = present(&found, table.settings());
            table.follow(present);
        }
        let before = {
            let mut known = self.0.found.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *known, found.clone())
        };
        if before != found {
            self.0.changed.notify_waiters();
        }
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
        let mut found = self.0.found.lock().unwrap_or_else(PoisonError::into_inner).clone();
        found.retain(|interface| allowed.contains(&interface.index.get()));
        found
    }

    /// How many interfaces bonds have, with those that wait for others to fail.
    pub fn count_for_bonds(&self) -> usize {
        self.table().count_for_links(self.today())
    }

    /// The interface of what is neither a bond's link nor a program's connection, and counted nowhere: where the
    /// kernel's own choice has a cap or a limit, or may not be used, another one that has none.
    pub(crate) fn plain_way(&self) -> Option<NonZeroU32> {
        let allowed = self.for_bonds(&BTreeSet::new());
        let first = self.0.found.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()?;
        let is_free = |interface: &&Interface| !self.is_tolled(&interface.name);
        let free = allowed.iter().find(is_free)?;
        if allowed.iter().filter(is_free).any(|own| own.index == first.index) {
            return None;
        }
        Some(free.index)
    }

    /// Where a connection to `to` goes that the program at `client` asked for.
    pub async fn assign(&self, client: SocketAddr, to: &Destination) -> Lanes {
        if !self.table().has_choice(to) {
            return Lanes::Free;
        }
        // What cannot be found out stays unknown: another user's program, or one that left.
        let process = spawn_blocking(move || program_at(client)).await.ok().flatten();
        let application = Application { process, port: to.port };
        let (now, today) = (self.now(), self.today());
        let mut table = self.table();
        match table.assign(application, &to.host.to_string(), now, today) {
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

    /// Follows the kernel, and keeps what is learnt; never ends. `note` hears when it cannot be
    /// kept.
    pub async fn keep(&self, note: &dyn Fn(String)) {
        let saving = self.save_again_and_again(note);
        tokio::join!(
            self.follow(),
            self.tick(),
            self.allot(),
            self.probe_again_and_again(),
            saving
        );
    }

    /// The same, where nobody is there to be told.
    pub async fn keep_silently(&self) {
        let saving = self.save_again_and_again(|_| ());
        tokio::join!(
            self.follow(),
            self.tick(),
            self.allot(),
            self.probe_again_and_again(),
            saving
        );
    }

    async fn follow(&self) {
        let mut changes = Changes::watch().ok();
        loop {
            match &mut changes {
                Some(heard) => tokio::select! {
                    heard = heard.next() => if heard.is_err() { changes = None },
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
            table.tick(self.now());
            if count % ASK_AGAIN == 0 {
                table.ask_again();
            }
        }
    }

    /// Takes allotments of caps when they are wanted.
    async fn allot(&self) {
        loop {
            let wish = self.table().wants_allotment(self.today());
            let Some((name, of)) = wish else {
                tokio::select! { () = self.0.wanted.notified() => {}, () = sleep(TICK) => {} }
                continue;
            };
            match self.0.file.clone() {
                None => self.table().allot_here(&name, &of),
                Some(file) => {
                    let asked = name.clone();
                    let got = spawn_blocking(move || Kept::allot(&file, &asked, &of)).await;
                    let got = got.ok().and_then(Result::ok);
                    let failed = got.is_none();
                    self.table().allotted(&name, got);
                    if failed {
                        // Nothing moves by it meanwhile, and saving tells why.
                        sleep(TICK).await;
                    }
                }
            }
            self.0.granted.notify_waiters();
        }
    }

    /// So many bytes went by an interface; they wait in [`Self::may`] for what they took too early.
    pub(super) fn charge(&self, name: &str, bytes: u64) {
        let policy = self.table().settings().policy(name);
        if policy.cap.is_some() {
            self.0.wanted.notify_one();
        }
        let mut buckets = self.0.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(rate) = policy.rate_limit else {
            buckets.remove(name);
            return;
        };
        let now = Instant::now();
        let new = || Pacing { rate, bucket: Bucket::new(rate, now), until: now };
        let pacing = buckets.entry(name.to_owned()).or_insert_with(new);
        if pacing.rate != rate {
            pacing.rate = rate;
            pacing.bucket.set_rate(rate, now);
        }
        // A day is longer than anybody waits.
        let wait = pacing.bucket.take(bytes, now).min(Duration::from_secs(86_400));
        pacing.until = now + wait;
    }

    /// What is not a program's connection moved so many bytes by an interface: a bond's link.
    pub fn link_moved(&self, name: &str, bytes: u64) {
        self.table().spent(name, bytes, self.today());
        self.charge(name, bytes);
    }

    /// So many bytes more went by an interface, headers included, that no content tells of.
    pub(super) fn carried(&self, name: &str, bytes: u64) {
        if bytes > 0 {
            self.table().carried(name, bytes, self.today());
            self.charge(name, bytes);
        }
    }

    /// Whether what moves by an interface has a cap or a limit to wait for.
    pub fn is_tolled(&self, name: &str) -> bool {
        let policy = self.table().settings().policy(name);
        policy.cap.is_some() || policy.rate_limit.is_some()
    }

    /// Waits until an interface may move more.
    ///
    /// # Errors
    /// Its cap is used up.
    pub async fn may(&self, name: &str) -> Result<(), UsedUp> {
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
                May::Over => return Err(self.used_up(name)),
                May::Wait => {
                    self.0.wanted.notify_one();
                    granted.await;
                }
            }
        }
        let until = {
            let buckets = self.0.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            buckets.get(name).map(|pacing| pacing.until)
        };
        if let Some(until) = until.filter(|until| *until > Instant::now()) {
            sleep_until(until.into()).await;
        }
        Ok(())
    }

    fn used_up(&self, name: &str) -> UsedUp {
        let cap = self.table().settings().policy(name).cap;
        let bytes = cap.map_or(0, |cap| cap.bytes);
        let reset_day = cap.map_or(1, |cap| cap.reset_day);
        UsedUp { interface: name.to_owned(), cap: ByteSize::from_bytes(bytes), reset_day }
    }

    /// Changes the settings; connections that are made from now on see the new ones.
    pub(super) fn change(&self, to: impl FnOnce(&Settings) -> Settings) {
        {
            let mut table = self.table();
            let settings = to(table.settings());
            table.allow(settings);
        }
        self.look();
        self.0.changed.notify_waiters();
    }

    /// Gives back what was allotted and not moved, and saves; when nothing is moved any more.
    ///
    /// # Errors
    /// As [`Self::save`].
    pub fn end(&self) -> io::Result<()> {
        self.table().give_back_allotments(self.today());
        self.save()
    }

    async fn save_again_and_again(&self, note: impl Fn(String)) {
        let mut told = false;
        loop {
            sleep(SAVE).await;
            let uplinks = self.clone();
            let saved = spawn_blocking(move || uplinks.save()).await;
            match saved.unwrap_or_else(|why| Err(io::Error::other(why))) {
                Ok(()) => told = false,
                Err(why) if !told => {
                    told = true;
                    note(self.unsaved(&why));
                }
                Err(_) => {}
            }
        }
    }

    /// What to say when it cannot be kept.
    pub fn unsaved(&self, why: &io::Error) -> String {
        let file = self.0.file.as_deref().unwrap_or_else(|| "".as_ref());
        format!(
            "what was learnt of interfaces and programs is not kept in {}: {why}",
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
