//! The bonds of a host to other members: which there are, and which are made.
//!
//! Mode detection as in DBAS §II-A, but without its dummy connection: the first stream to a member
//! goes the plain way, over one connection, while a bond is tried beside it; those that come later
//! use the bond (decision 0004). Who refuses is remembered, and asked again after a while.

use super::{
    by::{By, Interfaces},
    dial::Bond,
    engine::MEMORY,
    memory::Memory,
    standing::{Standing, stands},
    state::Settings,
    watching::Shown,
};
use crate::interfaces::{Accounts, Uplinks};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use thalweg_net::{
    Bookkeeper, Carried, Carrier, Destination, Dialer, Hop, Host, Leaving, Opening, Route, Wish,
    interfaces, into_the_world,
};
use thalweg_units::NodeId;
use thalweg_wire::mesh::Name;
use tokio::time::{Instant, sleep};

/// A bond without streams ends after this long: a browser's pause between two pages.
const IDLE: Duration = Duration::from_secs(60);

/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(5);

/// Who refused, or brought no second link, is asked again after this long: a daemon that is
/// updated meanwhile is found within a coffee.
const REFUSED: Duration = Duration::from_secs(600);

/// Who was not reached is asked again after this long.
const UNREACHED: Duration = Duration::from_secs(60);

/// What is remembered of members that have no bond, at most. Of more, the one that would be asked
/// again soonest is forgotten.
const REMEMBERED: usize = 1024;

/// Bonds at a time, of which each has memory and connections. For a further one the idlest is given
/// up; streams that use it keep it until they end.
const MAX_BONDS: usize = 64;

/// Bytes that the streams of all bonds hold together, of which one bond has half at most, as at a daemon.
const ALL: u64 = 2 * MEMORY;

/// Who waits for a bond waits this long for its second link, if there is to be one.
const PATIENCE: Duration = Duration::from_secs(10);

/// A member without a name is shown by so much of its key.
const SHORT: usize = 12;

/// The interfaces that were found are believed for so long.
const FRESH: Duration = Duration::from_secs(1);

/// The bonds of this host; cheap to clone. With the last clone and stream they end.
#[derive(Clone)]
pub struct Bonding(Arc<Shared>);

struct Shared {
    dialer: Dialer,
    settings: Settings,
    by: By,
    whose: Whose,
    /// What all bonds' streams may hold.
    memory: Memory,
    known: Mutex<Known>,
}

/// Which streams go by bonds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Those for which one is wanted.
    Asked,
    /// Those as well that find one ready.
    Ready,
    /// Those as well for which one can be made while they wait.
    Awaiting,
}

/// The member at the other end of a bond, and its routes; none if it is direct.
type Key = (NodeId, Vec<Route>);

#[derive(Default)]
struct Known {
    bonds: BTreeMap<Key, Entry>,
    /// Who is not asked.
    without: BTreeMap<Key, Without>,
    /// How many interfaces there were, and when.
    interfaces: Option<(usize, Instant)>,
}

/// A member that has no bond.
struct Without {
    until: Instant,
    name: Option<Name>,
    why: String,
}

struct Entry {
    bond: Arc<Bond>,
    /// The member's name, where the roster has one.
    name: Option<Name>,
    /// When a stream was asked for, or seen.
    used: Instant,
}

impl fmt::Debug for Bonding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.bonds()).finish()
    }
}

impl Bonding {
    /// Bonds whose links this dialler makes, by all interfaces that lead into the world.
    pub fn new(dialer: Dialer, settings: Settings) -> Self {
        Self::by(
            dialer,
            settings,
            Arc::new(|_| Ok(into_the_world(&interfaces()?, |_| Wish::default()))),
        )
    }

    /// By these interfaces alone.
    pub fn by(dialer: Dialer, settings: Settings, by: Interfaces) -> Self {
        Self::made(dialer, settings, By::These(by), Whose::Ready)
    }

    /// By these, whose links keep to the caps and limits of what is known of them.
    pub fn counted(dialer: Dialer, settings: Settings, by: Interfaces, uplinks: Uplinks) -> Self {
        Self::made(dialer, settings, By::Counted(by, uplinks), Whose::Ready)
    }

    fn made(dialer: Dialer, settings: Settings, by: By, whose: Whose) -> Self {
        Self::within(dialer, settings, by, (whose, Memory::new(ALL)))
    }

    fn within(
        dialer: Dialer,
        settings: Settings,
        by: By,
        (whose, memory): (Whose, Memory),
    ) -> Self {
        let known = Mutex::default();
        Self(Arc::new(Shared { dialer, settings, by, whose, memory, known }))
    }

    /// By those that the user allows, within their caps and limits.
    pub fn over(dialer: Dialer, settings: Settings, uplinks: Uplinks) -> Self {
        Self::made(dialer, settings, By::Allowed(uplinks), Whose::Ready)
    }

    /// The same, which makes bonds only for who asks for one.
    #[must_use]
    pub fn on_demand(self) -> Self {
        self.of(Whose::Asked)
    }

    /// The same, whose streams wait for a bond that is being made as long as the dialler lets a carrier
    /// take: for who opens one stream for all that it moves, so that it would never use a later bond.
    #[must_use]
    pub fn awaited(self) -> Self {
        self.of(Whose::Awaiting)
    }

    fn of(&self, whose: Whose) -> Self {
        let Shared { dialer, settings, by, memory, .. } = &*self.0;
        Self::within(dialer.clone(), *settings, by.clone(), (whose, memory.clone()))
    }

    /// The bonds there are, for who shows them: each member, its streams, its links, and interfaces without one;
    /// and the members that are not asked for one, why, and for how many seconds.
    pub fn report(&self) -> Value {
        let now = Instant::now();
        let known = self.0.lock();
        let bonds = known.bonds.iter().map(|((key, _), entry)| {
            let without = entry.bond.standing().borrow().without.clone();
            json!({
                "member": key.to_string(), "name": entry.name, "streams": entry.bond.streams(),
                "links": entry.bond.links(), "without": without,
            })
        });
        let none =
            known.without.iter().filter(|(_, none)| none.until > now).map(|((key, _), none)| {
                let left = none.until.duration_since(now).as_secs_f64();
                json!({
                    "member": key.to_string(), "name": none.name, "links": [], "none": none.why,
                    "again_seconds": left,
                })
            });
        bonds.chain(none).collect()
    }

    /// The bonds there are, by their members' names where the roster has them.
    pub fn shown(&self) -> Vec<Shown> {
        let known = self.0.lock();
        let shown = |((key, _), entry): (&Key, &Entry)| {
            let member = match &entry.name {
                Some(name) => name.to_string(),
                None => key.to_string().chars().take(SHORT).collect(),
            };
            Shown { member, streams: entry.bond.streams(), links: entry.bond.links() }
        };
        known.bonds.iter().map(shown).collect()
    }

    /// The bonds there are, with their members' keys.
    pub fn bonds(&self) -> Vec<(NodeId, Arc<Bond>)> {
        let known = self.0.lock();
        known.bonds.iter().map(|((member, _), entry)| (*member, Arc::clone(&entry.bond))).collect()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many interfaces there are.
    fn interfaces(&self, known: &mut Known) -> usize {
        let now = Instant::now();
        match known.interfaces {
            Some((count, at)) if now.duration_since(at) < FRESH => count,
            _ => {
                let count = self.by.count();
                known.interfaces = Some((count, now));
                count
            }
        }
    }

    /// The bond to a member, which is made if it is not there; `None`: it has none, or one would be
    /// of no use.
    fn bond(self: &Arc<Self>, to: &Hop, member: NodeId) -> Option<Arc<Bond>> {
        let key = (member, to.by.clone());
        let mut known = self.lock();
        let now = Instant::now();
        known.forget(now);
        if let Some(entry) = known.bonds.get_mut(&key) {
            entry.used = now;
            return Some(Arc::clone(&entry.bond));
        }
        let ways = self.interfaces(&mut known) * to.by.len().max(1);
        if known.without.contains_key(&key) || ways < 2 {
            return None;
        }
        let (by, within) = (self.by.clone(), (self.settings, self.memory.part(MEMORY)));
        let bond = match Bond::over(self.dialer.clone(), to.clone(), within, by) {
            Ok(bond) => Arc::new(bond),
            Err(why) => {
                let (until, name, why) = (now + UNREACHED, to.name.clone(), why.to_string());
                known.without.insert(key, Without { until, name, why });
                return None;
            }
        };
        known.make_room();
        let name = to.name.clone();
        known.bonds.insert(key.clone(), Entry { bond: Arc::clone(&bond), name, used: now });
        tokio::spawn(keep(Arc::downgrade(self), key, Arc::downgrade(&bond)));
        Some(bond)
    }

    /// A bond is of no use any more; for how long none is made, and why.
    fn drop_bond(&self, key: Key, bond: &Weak<Bond>, without: Option<(Duration, String)>) {
        let mut known = self.lock();
        if known.bonds.get(&key).is_some_and(|entry| entry.is(bond))
            && let Some(Entry { name, .. }) = known.bonds.remove(&key)
            && let Some((time, why)) = without
        {
            let until = Instant::now() + time;
            known.without.insert(key, Without { until, name, why });
        }
    }
}

impl Entry {
    fn is(&self, bond: &Weak<Bond>) -> bool {
        Weak::ptr_eq(&Arc::downgrade(&self.bond), bond)
    }
}

impl Known {
    fn forget(&mut self, now: Instant) {
        self.without.retain(|_, none| none.until > now);
        while self.without.len() > REMEMBERED {
            let next = self.without.iter().min_by_key(|(_, none)| none.until);
            let Some(key) = next.map(|(key, _)| key.clone()) else { return };
            self.without.remove(&key);
        }
    }

    fn make_room(&mut self) {
        while self.bonds.len() >= MAX_BONDS {
            let idlest = self.bonds.iter().min_by_key(|(_, entry)| entry.used);
            let Some(key) = idlest.map(|(key, _)| key.clone()) else { return };
            // Its streams hold it until they end.
            self.bonds.remove(&key);
        }
    }
}

/// Ends a bond that is refused, broken, idle, or brought no second link.
async fn keep(shared: Weak<Shared>, key: Key, bond: Weak<Bond>) {
    loop {
        let Some(mut standing) = bond.upgrade().map(|bond| bond.standing()) else { return };
        let done = |standing: &Standing| standing.is_over || standing.refused.is_some();
        let is_done = tokio::select! {
            done = standing.wait_for(done) => done.is_ok(),
            () = sleep(LOOK) => false,
        };
        let (Some(shared), Some(held)) = (shared.upgrade(), bond.upgrade()) else { return };
        let standing = held.standing().borrow().clone();
        if is_done {
            let without = standing.refused.map(|why| (REFUSED, why));
            return shared.drop_bond(key, &bond, without);
        }
        let mut known = shared.lock();
        let Some(entry) = known.bonds.get_mut(&key).filter(|entry| entry.is(&bond)) else { return };
        if held.streams() > 0 {
            entry.used = Instant::now();
        }
        if entry.used.elapsed() >= IDLE {
            drop(known);
            let why = standing.last.unwrap_or_else(|| "no second link could be opened".to_owned());
            let without = match standing.most {
                0 => Some((UNREACHED, why)),
                1 if standing.wanted > 1 => Some((REFUSED, why)),
                _ => None,
            };
            return shared.drop_bond(key, &bond, without);
        }
    }
}

impl Carrier for Bonding {
    fn open(&self, to: &Hop, waits: bool) -> Option<Opening> {
        let member = to.key()?;
        let is_asked = self.0.whose == Whose::Asked;
        if !waits && (is_asked || to.addresses().all(|at| is_here(&at.host))) {
            return None;
        }
        let Some(bond) = self.0.bond(to, member) else {
            let why =
                "it has none, or this host has not two interfaces, or routes, that lead there";
            return waits.then(|| Box::pin(async move { Err(io::Error::other(why)) }) as Opening);
        };
        let waits = waits || self.0.whose == Whose::Awaiting;
        if !waits && !bond.standing().borrow().is_worth_it() {
            return None;
        }
        Some(Box::pin(async move {
            if waits {
                stands(bond.standing(), PATIENCE).await.map_err(io::Error::other)?;
            }
            let opened = bond.open().await.map_err(|why| why.error());
            opened.map(|stream| Box::new(stream.of(bond)) as Box<dyn Carried>)
        }))
    }

    fn leaves_by(&self, to: &Hop) -> io::Result<Option<Leaving>> {
        let Some(uplinks) = self.0.by.uplinks() else { return Ok(None) };
        if to.addresses().any(|at| is_here(&at.host)) {
            return Ok(None);
        }
        let ip = |at: &Destination| match &at.host {
            Host::Ip(ip) => Some(ip.to_canonical()),
            Host::Name(_) => None,
        };
        let interface = uplinks.plain_way(&to.addresses().filter_map(ip).collect::<Vec<_>>())?;
        let books: Arc<dyn Bookkeeper> = Arc::new(Accounts::new(uplinks.clone()));
        Ok(interface.map(|interface| Leaving { interface, books: Some(books) }))
    }
}

/// Nothing but loopback leads to this host itself.
fn is_here(host: &Host) -> bool {
    matches!(host, Host::Ip(ip) if ip.to_canonical().is_loopback())
}
