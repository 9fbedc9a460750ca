//! The interfaces of this host as its programs' connections use them: the table, followed by what
//! the kernel says, and kept in a file.

use super::{
    Client,
    faults::Faults,
    kept::Kept,
    passage::Passage,
    paying::Paces,
    present::present,
    probing::Prober,
    settings::Settings,
    table::{Assigned, Table},
};
use std::{
    collections::BTreeSet,
    fmt, io,
    num::NonZeroU32,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};
use thalweg_base::{
    budget::{Budget, Purpose, Scope},
    clock::WallClock,
};
use thalweg_bond::Application;
use thalweg_net::{Changes, Interface, interfaces};
use thalweg_units::{ByteSize, Time, WallTime};
use thalweg_wire::Destination;
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval, sleep},
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
            let why = format!("the kernel tells of no changes, and is asked each second: {why}");
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
                return Err("this process keeps no account, which a cap needs".to_owned());
            }
            table.allow(settings);
        }
        self.look();
        self.0.changed.notify_waiters();
        Ok(())
    }
}
