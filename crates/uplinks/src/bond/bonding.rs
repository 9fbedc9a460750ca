//! The bonds of this host to other members: which exist, and when one is made.
//!
//! Mode detection as in DBAS §II-A, but without its dummy connection: the first stream to a member uses one plain
//! connection while a bond is tried in parallel; later streams use the bond (decision 0004). A member that refuses
//! bonds is remembered, and asked again later.

use super::{
    dial::Bond,
    engine::MEMORY,
    link_interfaces::{InterfaceLister, LinkInterfaces},
    memory::Memory,
    readiness::{Readiness, wait_until_ready},
    registry::BondStatus,
    state::Settings,
};
use crate::interfaces::{Accounts, Uplinks};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Weak},
    time::Duration,
};
use thalweg_net::{
    Bookkeeper, CarriedStream, Carrier, Destination, Dialer, EgressChoice, Hop, Host,
    InterfaceWish, OpeningStream, Route, interfaces, internet_interfaces,
};
use thalweg_units::NodeId;
use thalweg_wire::mesh::Name;
use tokio::time::{Instant, sleep};

/// A bond without streams ends after this long: as long as a browser's pause between two pages.
const IDLE: Duration = Duration::from_secs(60);

/// How often a bond is checked for idleness.
const LOOK: Duration = Duration::from_secs(5);

/// A member that refused a bond, or to which no second link came up, is asked again after this long: a daemon that is
/// updated meanwhile is found within a coffee break.
const REFUSED: Duration = Duration::from_secs(600);

/// A member that was not reached is tried again after this long.
const UNREACHED: Duration = Duration::from_secs(60);

/// Members without a bond that are remembered, at most. Beyond that, the one due for its next try first is forgotten.
const REMEMBERED: usize = 1024;

/// Bonds at a time; each has memory and connections. To make room for another one, the bond that was used longest ago
/// is removed; streams that use it keep it until they end.
const MAX_BONDS: usize = 64;

/// Bytes that the streams of all bonds hold together. One bond gets half of that at most, as at a daemon.
const ALL: u64 = 2 * MEMORY;

/// How long a stream that waits for a bond waits for the second link, if there is to be one.
const PATIENCE: Duration = Duration::from_secs(10);

/// Characters of the key that are shown for a member without a name.
const SHORT: usize = 12;

/// How long a count of the interfaces is reused.
const FRESH: Duration = Duration::from_secs(1);

/// The bonds of this host; cheap to clone. They end with the last clone and the last stream.
#[derive(Clone)]
pub struct Bonding(Arc<BondingState>);

struct BondingState {
    dialer: Dialer,
    settings: Settings,
    by: LinkInterfaces,
    bond_use: BondUse,
    /// What the streams of all bonds may hold.
    memory: Memory,
    known: Mutex<BondTable>,
}

/// Which streams use bonds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BondUse {
    /// Only streams that ask for a bond.
    OnRequest,
    /// Also streams that find a bond ready.
    Ready,
    /// Also streams for which a bond can be made while they wait.
    Awaiting,
}

/// The member at the other end of a bond, and the routes to it; no routes if it is direct.
type BondKey = (NodeId, Vec<Route>);

#[derive(Default)]
struct BondTable {
    bonds: BTreeMap<BondKey, OpenBond>,
    /// Members that are not asked for a bond for now.
    without: BTreeMap<BondKey, SkippedMember>,
    /// The number of interfaces, and when they were counted.
    interfaces: Option<(usize, Instant)>,
}

/// A member that is not asked for a bond until some time.
struct SkippedMember {
    until: Instant,
    name: Option<Name>,
    why: String,
}

struct OpenBond {
    bond: Arc<Bond>,
    /// The member's name, where the roster has one.
    name: Option<Name>,
    /// When a stream was last asked for, or seen open.
    used: Instant,
}

impl fmt::Debug for Bonding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.bonds()).finish()
    }
}

impl Bonding {
    /// Creates bonds whose links `dialer` makes, over all interfaces that lead into the world.
    pub fn new(dialer: Dialer, settings: Settings) -> Self {
        Self::with_interfaces(
            dialer,
            settings,
            Arc::new(|_| Ok(internet_interfaces(&interfaces()?, |_| InterfaceWish::default()))),
        )
    }

    /// As [`Self::new`], but over these interfaces alone.
    pub fn with_interfaces(dialer: Dialer, settings: Settings, by: InterfaceLister) -> Self {
        Self::with_new_memory(dialer, settings, LinkInterfaces::Listed(by), BondUse::Ready)
    }

    /// As [`Self::with_interfaces`]; links keep to the interfaces' caps and limits.
    pub fn with_caps(
        dialer: Dialer,
        settings: Settings,
        by: InterfaceLister,
        uplinks: Uplinks,
    ) -> Self {
        Self::with_new_memory(
            dialer,
            settings,
            LinkInterfaces::ListedWithCaps(by, uplinks),
            BondUse::Ready,
        )
    }

    fn with_new_memory(
        dialer: Dialer,
        settings: Settings,
        by: LinkInterfaces,
        bond_use: BondUse,
    ) -> Self {
        Self::build(dialer, settings, by, (bond_use, Memory::new(ALL)))
    }

    fn build(
        dialer: Dialer,
        settings: Settings,
        by: LinkInterfaces,
        (bond_use, memory): (BondUse, Memory),
    ) -> Self {
        let known = Mutex::default();
        Self(Arc::new(BondingState { dialer, settings, by, bond_use, memory, known }))
    }

    /// Creates bonds over the interfaces that the user allows, within their caps and limits.
    pub fn with_uplinks(dialer: Dialer, settings: Settings, uplinks: Uplinks) -> Self {
        Self::with_new_memory(dialer, settings, LinkInterfaces::Allowed(uplinks), BondUse::Ready)
    }

    /// A copy with the same settings that makes bonds only for streams that ask for one.
    #[must_use]
    pub fn on_demand(self) -> Self {
        self.with_bond_use(BondUse::OnRequest)
    }

    /// A copy whose streams wait for a bond that is being made, as long as the dialler lets a carrier take. It is for a
    /// caller that opens one stream for everything it moves, and so would never use a later bond.
    #[must_use]
    pub fn awaited(self) -> Self {
        self.with_bond_use(BondUse::Awaiting)
    }

    fn with_bond_use(&self, bond_use: BondUse) -> Self {
        let BondingState { dialer, settings, by, memory, .. } = &*self.0;
        Self::build(dialer.clone(), *settings, by.clone(), (bond_use, memory.clone()))
    }

    /// All bonds as JSON: each member, its streams, its links, and the interfaces without a link. Then the members that
    /// are not asked for a bond, with the reason and the seconds until they are asked again.
    pub fn report(&self) -> Value {
        let now = Instant::now();
        let known = self.0.lock();
        let bonds = known.bonds.iter().map(|((key, _), entry)| {
            let without = entry.bond.readiness().borrow().without.clone();
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

    /// The bonds, by their members' names; without a name in the roster, by the beginning of the key.
    pub fn shown(&self) -> Vec<BondStatus> {
        let known = self.0.lock();
        let shown = |((key, _), entry): (&BondKey, &OpenBond)| {
            let member = match &entry.name {
                Some(name) => name.to_string(),
                None => key.to_string().chars().take(SHORT).collect(),
            };
            BondStatus { member, streams: entry.bond.streams(), links: entry.bond.links() }
        };
        known.bonds.iter().map(shown).collect()
    }

    /// The bonds, with their members' keys.
    pub fn bonds(&self) -> Vec<(NodeId, Arc<Bond>)> {
        let known = self.0.lock();
        known.bonds.iter().map(|((member, _), entry)| (*member, Arc::clone(&entry.bond))).collect()
    }
}

impl BondingState {
    fn lock(&self) -> MutexGuard<'_, BondTable> {
        self.known.lock()
    }

    /// The number of interfaces, counted anew when the last count is older than [`FRESH`].
    fn interfaces(&self, known: &mut BondTable) -> usize {
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

    /// The bond to a member, which is made if there is none. `None`: the member has none for now, or a bond would be of
    /// no use.
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
        let bond = match Bond::with_memory(self.dialer.clone(), to.clone(), within, by) {
            Ok(bond) => Arc::new(bond),
            Err(why) => {
                let (until, name, why) = (now + UNREACHED, to.name.clone(), why.to_string());
                known.without.insert(key, SkippedMember { until, name, why });
                return None;
            }
        };
        known.make_room();
        let name = to.name.clone();
        known.bonds.insert(key.clone(), OpenBond { bond: Arc::clone(&bond), name, used: now });
        tokio::spawn(watch_bond(Arc::downgrade(self), key, Arc::downgrade(&bond)));
        Some(bond)
    }

    /// Removes a bond that is of no use any more. `without`: for how long none is made, and why.
    fn drop_bond(&self, key: BondKey, bond: &Weak<Bond>, without: Option<(Duration, String)>) {
        let mut known = self.lock();
        if known.bonds.get(&key).is_some_and(|entry| entry.is(bond))
            && let Some(OpenBond { name, .. }) = known.bonds.remove(&key)
            && let Some((time, why)) = without
        {
            let until = Instant::now() + time;
            known.without.insert(key, SkippedMember { until, name, why });
        }
    }
}

impl OpenBond {
    fn is(&self, bond: &Weak<Bond>) -> bool {
        Weak::ptr_eq(&Arc::downgrade(&self.bond), bond)
    }
}

impl BondTable {
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

/// Removes the bond once it is refused, broken or idle. If it is idle and had no second link, none is made for a while.
async fn watch_bond(shared: Weak<BondingState>, key: BondKey, bond: Weak<Bond>) {
    loop {
        let Some(mut readiness) = bond.upgrade().map(|bond| bond.readiness()) else { return };
        let done = |readiness: &Readiness| readiness.is_over || readiness.refused.is_some();
        let is_done = tokio::select! {
            done = readiness.wait_for(done) => done.is_ok(),
            () = sleep(LOOK) => false,
        };
        let (Some(shared), Some(held)) = (shared.upgrade(), bond.upgrade()) else { return };
        let readiness = held.readiness().borrow().clone();
        if is_done {
            let without = readiness.refused.map(|why| (REFUSED, why));
            return shared.drop_bond(key, &bond, without);
        }
        let mut known = shared.lock();
        let Some(entry) = known.bonds.get_mut(&key).filter(|entry| entry.is(&bond)) else { return };
        if held.streams() > 0 {
            entry.used = Instant::now();
        }
        if entry.used.elapsed() >= IDLE {
            drop(known);
            let why = readiness.last.unwrap_or_else(|| "no second link could be opened".to_owned());
            let without = match readiness.most {
                0 => Some((UNREACHED, why)),
                1 if readiness.wanted > 1 => Some((REFUSED, why)),
                _ => None,
            };
            return shared.drop_bond(key, &bond, without);
        }
    }
}

impl Carrier for Bonding {
    fn open(&self, to: &Hop, waits: bool) -> Option<OpeningStream> {
        let member = to.key()?;
        let is_asked = self.0.bond_use == BondUse::OnRequest;
        if !waits && (is_asked || to.addresses().all(|at| is_this_host(&at.host))) {
            return None;
        }
        let Some(bond) = self.0.bond(to, member) else {
            let why = "it accepts none, or this host does not have two interfaces or routes that lead \
                 there";
            return waits
                .then(|| Box::pin(async move { Err(io::Error::other(why)) }) as OpeningStream);
        };
        let waits = waits || self.0.bond_use == BondUse::Awaiting;
        if !waits && !bond.readiness().borrow().is_useful() {
            return None;
        }
        Some(Box::pin(async move {
            if waits {
                wait_until_ready(bond.readiness(), PATIENCE).await.map_err(io::Error::other)?;
            }
            let opened = bond.open().await.map_err(|why| why.error());
            opened.map(|stream| Box::new(stream.with_bond(bond)) as Box<dyn CarriedStream>)
        }))
    }

    fn egress(&self, to: &Hop) -> io::Result<Option<EgressChoice>> {
        let Some(uplinks) = self.0.by.uplinks() else { return Ok(None) };
        if to.addresses().any(|at| is_this_host(&at.host)) {
            return Ok(None);
        }
        let ip = |at: &Destination| match &at.host {
            Host::Ip(ip) => Some(ip.to_canonical()),
            Host::Name(_) => None,
        };
        let interface =
            uplinks.plain_interface(&to.addresses().filter_map(ip).collect::<Vec<_>>())?;
        let books: Arc<dyn Bookkeeper> = Arc::new(Accounts::new(uplinks.clone()));
        Ok(interface.map(|interface| EgressChoice { interface, books: Some(books) }))
    }
}

/// Whether this is a loopback address: only those lead to this host itself.
fn is_this_host(host: &Host) -> bool {
    matches!(host, Host::Ip(ip) if ip.to_canonical().is_loopback())
}
