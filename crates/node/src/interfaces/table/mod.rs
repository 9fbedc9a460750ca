//! Who gets a connection; no I/O, time as an argument.

mod caps;
mod probing;
mod rates;
mod reasons;
mod shown;
mod thrift;
mod usable;

pub use shown::Shown;
pub use thrift::Flow;

use super::{
    caps::{Caps, with_headers},
    doubt::{Doubts, Server, Why},
    estimate::Estimate,
    kept::{Addition, Kept},
    settings::Settings,
};
use crate::proxy::is_near;
use probing::Probes;
use rates::{Flowing, Second};
use reasons::keeping;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_bond::{
    Affinity, Application, ConnectionMethod, ConnectionScheduler, Demand, Pick, Thrift, kept_to,
};
use thalweg_net::Host;
use thalweg_units::{Time, WallTime};
use thalweg_wire::Destination;

/// Decisions that are remembered for who asks why.
const MOST_DECISIONS: usize = 64;

/// Estimates of interfaces that are gone: a dock, some networks, tethered telephones.
const MOST_GONE: usize = 64;

/// A connection that moved nothing for so long rests: it is no load. Programs keep connections for
/// later requests.
const RESTS: Duration = Duration::from_secs(3);

/// No interface's index: destinations that only the kernel's own choice leads to.
const UNBOUND: u32 = 0;

/// An interface that is usable now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// The kernel's index.
    pub index: u32,
    /// Its name: what settings and kept counts go by.
    pub name: String,
}

/// A connection under way.
#[derive(Clone, Debug)]
struct Open {
    application: Application,
    destination: String,
    interface: u32,
    expected: u64,
    /// Bytes to and from this host so far.
    moved: (u64, u64),
    /// All of them when the last second ended.
    before: u64,
    /// Whether no route leads there by the interface that it was assigned.
    is_routeless: bool,
    /// Whether it stands; before, it is being dialled.
    stands: bool,
    /// When it began, or moved something last.
    active: Time,
}

impl Open {
    fn server(&self) -> Server {
        (self.destination.clone(), self.application.port)
    }
}

/// Where a connection went, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Who asked.
    pub application: Application,
    /// For what.
    pub destination: String,
    /// By which interface.
    pub interface: String,
    /// The reason.
    pub why: String,
    /// When.
    pub at: Time,
}

/// Where a connection is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// Wherever the kernel sends it: there is no choice.
    Free,
    /// By these interfaces, the first at once and each later one if those before fail; known
    /// by this number from now on. `true` with those that are not meant to be used now: lower tiers,
    /// and what is in doubt.
    By(u64, Vec<(u32, bool)>),
    /// By none: the user's settings leave none.
    Nowhere,
}

/// The interfaces, what is under way by them, and what is remembered of applications.
#[derive(Debug)]
pub struct Table {
    settings: Settings,
    scheduler: ConnectionScheduler,
    affinity: Affinity,
    kept: Kept,
    present: Vec<Present>,
    estimates: BTreeMap<String, Estimate>,
    /// Bytes to and from this host since the last second's end.
    second: BTreeMap<u32, Second>,
    doubts: Doubts,
    probes: Probes,
    addition: Addition,
    caps: Caps,
    ticked: Time,
    open: BTreeMap<u64, Open>,
    /// Links of bonds, by their interface's name.
    links: BTreeMap<String, u64>,
    /// What goes by those, and by downloads.
    flowing: BTreeMap<u32, Flowing>,
    /// Where a time is to be met at the least cost: what waits.
    thrift: Option<Thrift<String>>,
    next: u64,
    decisions: VecDeque<Decision>,
}

impl Table {
    /// By these settings, with what was kept.
    pub fn new(settings: Settings, kept: Kept, now: Time) -> Self {
        Self {
            scheduler: ConnectionScheduler::new(settings.schedule),
            affinity: Affinity::new(settings.affinity),
            settings,
            kept,
            present: Vec::new(),
            estimates: BTreeMap::new(),
            second: BTreeMap::new(),
            doubts: Doubts::default(),
            probes: Probes::default(),
            addition: Addition::default(),
            caps: Caps::default(),
            ticked: now,
            open: BTreeMap::new(),
            links: BTreeMap::new(),
            flowing: BTreeMap::new(),
            thrift: None,
            next: 0,
            decisions: VecDeque::new(),
        }
    }

    /// Assigns by another method from now on.
    pub fn schedule_by(&mut self, method: ConnectionMethod) {
        if self.scheduler.method() != method {
            self.scheduler = ConnectionScheduler::new(method);
        }
    }

    /// These are usable now, in the system's order of preference; what went by others is free
    /// to go elsewhere.
    pub fn follow(&mut self, present: Vec<Present>) {
        for gone in self.present.iter().filter(|old| !present.contains(old)) {
            self.affinity.gone(gone.index);
            self.doubts.forget(gone.index);
        }
        self.present = present;
        let is_there = |index: &u32| self.present.iter().any(|present| present.index == *index);
        self.flowing.retain(|index, _| is_there(index));
        self.forget_old_estimates();
        for name in self.present.iter().map(|present| &present.name) {
            let is_new = !self.estimates.contains_key(name);
            if let Some(kept) = self.kept.estimate(name).filter(|_| is_new) {
                self.estimates.insert(name.clone(), kept);
            }
        }
    }

    /// Names of interfaces come and go: of those that are gone the estimates heard of last are kept.
    fn forget_old_estimates(&mut self) {
        let is_gone = |name: &&String| self.present.iter().all(|present| present.name != **name);
        let gone: Vec<String> = self.estimates.keys().filter(is_gone).cloned().collect();
        let mut gone: Vec<_> =
            gone.into_iter().map(|name| (self.estimates[&name].heard(), name)).collect();
        gone.sort();
        for (_, name) in gone.iter().rev().skip(MOST_GONE) {
            self.estimates.remove(name);
        }
    }

    /// The user's settings from now on; connections under way go on.
    pub fn allow(&mut self, settings: Settings) {
        self.schedule_by(settings.schedule);
        if settings.affinity != self.settings.affinity {
            self.affinity = Affinity::new(settings.affinity);
        }
        self.settings = settings;
    }

    /// The user's settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where a connection of this application to this destination is to go.
    pub fn assign(
        &mut self,
        application: Application,
        destination: &str,
        now: Time,
        today: WallTime,
    ) -> Assigned {
        if self.present.len() < 2 && self.settings.is_plain() {
            return Assigned::Free;
        }
        let used = self.affinity.of(destination, now);
        if used.first() == Some(&UNBOUND) && self.settings.is_plain() {
            return Assigned::Free;
        }
        let (usable, last) = self.usable(&application, destination, now, today);
        let candidates = self.candidates(&usable, now);
        let expected = self.kept.applications.expected(&application);
        let used = self.with_open(used, &application, destination);
        let kept = kept_to(&candidates, &used, expected, self.scheduler.method());
        let among = kept.as_deref().unwrap_or(&candidates);
        let pick = self.scheduler.pick(among, expected, application.nature());
        let why = |pick: &Pick| match &kept {
            Some(kept) => keeping(kept.len(), pick),
            None => self.reason(pick, (&application, destination), candidates.len(), (now, today)),
        };
        let picked = pick.map(|pick| (pick.interface, why(&pick)));
        let Some((first, why)) = picked else { return Assigned::Nowhere };
        let others = candidates.iter().map(|c| c.interface).filter(|index| *index != first);
        let mut order: Vec<(u32, bool)> =
            std::iter::once(first).chain(others).map(|index| (index, false)).collect();
        order.extend(last.iter().map(|at| (self.present[*at].index, true)));
        self.decide(&application, destination, first, why, now);
        let id = self.next;
        self.next += 1;
        let (destination, interface) = (destination.to_owned(), first);
        let (moved, before, stands, active) = ((0, 0), 0, false, now);
        let is_routeless = false;
        let open = Open {
            application,
            destination,
            interface,
            expected,
            moved,
            before,
            is_routeless,
            stands,
            active,
        };
        self.open.insert(id, open);
        Assigned::By(id, order)
    }

    /// The connection stands, by this interface, with this round trip.
    pub fn stands(&mut self, id: u64, interface: u32, rtt: Option<Duration>, now: Time) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let assigned = std::mem::replace(&mut open.interface, interface);
        let missed = assigned != interface;
        (open.stands, open.active) = (true, now);
        let is_routeless = open.is_routeless;
        let (application, destination) = (open.application.clone(), open.destination.clone());
        let server = open.server();
        self.affinity.went(&destination, interface, now);
        self.doubts.serves(interface);
        if let (Some(rtt), Some(name)) = (rtt, self.name(interface)) {
            self.estimates.entry(name).or_default().round_trip(rtt);
        }
        if missed {
            let why = match is_routeless {
                true => "by what was tried before it no route leads there",
                false => {
                    self.doubts.missed(assigned, server, now);
                    "what was tried before it did not answer"
                }
            };
            let why = why.to_owned();
            self.decide(&application, &destination, interface, why, now);
        }
    }

    /// No route to the connection's destination leaves by this interface: that is no fault of it.
    pub fn leads_not_by(&mut self, id: u64, interface: u32) {
        if let Some(open) = self.open.get_mut(&id) {
            open.is_routeless |= open.interface == interface;
        }
    }

    /// Whom the connection was meant for has answered.
    pub fn proven(&mut self, id: u64, now: Time) {
        if let Some(open) = self.open.get(&id) {
            self.doubts.proven(open.interface, Some(open.server()), now);
        }
    }

    /// Somebody else answered the connection than whom it was meant for, or the server is at fault: the destination need
    /// not keep to its interface, which is left out for a while once another destination or another interface tells
    /// whose fault it is.
    pub fn answered_falsely(&mut self, id: u64, now: Time) {
        if let Some(open) = self.open.get(&id) {
            self.affinity.free(&open.destination, open.interface);
            self.doubts.answered_falsely(open.interface, open.server(), now);
        }
    }

    /// A bond's link by it reached another than the member, who is reached by other interfaces.
    pub fn is_impostor(&mut self, interface: u32, now: Time) {
        if self.doubts.of(interface, now) != Some(Why::Impostor) {
            self.doubts.believe(interface, Why::Impostor, now);
        }
    }

    /// A bond's link by it reached the very member.
    pub fn is_genuine(&mut self, interface: u32, now: Time) {
        self.doubts.proven(interface, None, now);
    }

    /// The connection has moved so many bytes by now, to and from this host. How many more than
    /// before.
    pub fn moved(&mut self, id: u64, down: u64, up: u64, now: Time, today: WallTime) -> u64 {
        let Some(open) = self.open.get_mut(&id) else { return 0 };
        let more = (down.saturating_sub(open.moved.0), up.saturating_sub(open.moved.1));
        let all = more.0.saturating_add(more.1);
        if all == 0 {
            return 0;
        }
        open.moved = (down.max(open.moved.0), up.max(open.moved.1));
        open.active = now;
        let interface = open.interface;
        let since = now.since(self.ticked);
        self.second.entry(interface).or_default().add(more, since);
        if let Some(name) = self.name(interface) {
            self.spent(&name, all, today);
        }
        all
    }

    /// So many bytes more went by an interface, by whatever of ours.
    pub fn spent(&mut self, name: &str, bytes: u64, today: WallTime) {
        self.carried(name, with_headers(bytes), today);
    }

    /// The same, of bytes that have their headers.
    pub fn carried(&mut self, name: &str, bytes: u64, today: WallTime) {
        if self.settings.policy(name).cap.is_some() {
            return self.caps.pay(name, bytes);
        }
        let period = self.period(name, today);
        self.kept.spend(name, bytes, period);
        self.addition.spent(name, bytes, period);
    }

    /// The connection stands, but by none of the interfaces: only the kernel's own choice led there,
    /// and the next ones to this destination go that way at once.
    pub fn stands_free(&mut self, id: u64, now: Time) {
        if let Some(open) = self.open.remove(&id) {
            self.affinity.went(&open.destination, UNBOUND, now);
            // What was decided came to nothing.
            let of = |d: &Decision| {
                d.destination == open.destination && d.application == open.application
            };
            if let Some(at) = self.decisions.iter().rposition(of) {
                self.decisions.remove(at);
            }
        }
    }

    /// Whether there is anything to decide for a connection to `to`.
    pub fn has_choice(&self, to: &Destination) -> bool {
        let is_loopback = matches!(&to.host, Host::Ip(ip) if ip.to_canonical().is_loopback());
        let is_near = is_loopback || (is_near(&to.host) && !self.settings.near);
        !is_near && (self.present.len() > 1 || !self.settings.is_plain())
    }

    /// What the legs to relays are bound to, of this order: nothing, so that the kernel decides and
    /// bonds may be used, as long as its own choice is among those meant to be used, and free.
    pub fn relays_leave_by(&self, order: &[(u32, bool)]) -> Option<u32> {
        let own = self.present.first()?;
        let policy = self.settings.policy(&own.name);
        let is_free = policy.cap.is_none() && policy.rate_limit.is_none();
        let is_meant = order.contains(&(own.index, false));
        if is_free && is_meant { None } else { order.first().map(|(index, _)| *index) }
    }

    /// What could not be kept is kept the next time.
    pub fn give_back(&mut self, mut addition: Addition) {
        addition.follow(std::mem::take(&mut self.addition));
        self.addition = addition;
    }

    /// The interface that a connection goes by.
    pub fn interface_of(&self, id: u64) -> Option<String> {
        self.open.get(&id).and_then(|open| self.name(open.interface))
    }

    /// What TCP said of the connection: its round trip, and what it sent again of how many bytes
    /// since the last look.
    pub fn saw(&mut self, id: u64, rtt: Duration, again: u64, all: u64) {
        let Some(name) = self.interface_of(id) else { return };
        let estimate = self.estimates.entry(name).or_default();
        estimate.round_trip(rtt);
        estimate.sent_again(again, all);
    }

    /// The connection has ended, or came to nothing.
    pub fn ended(&mut self, id: u64) {
        if let Some(open) = self.open.remove(&id).filter(|open| open.stands) {
            let bytes = open.moved.0.saturating_add(open.moved.1);
            self.kept.applications.ended(&open.application, bytes);
            self.addition.ended(&open.application, bytes);
        }
    }

    /// What came since it was last taken, to be kept.
    pub fn take_addition(&mut self) -> Addition {
        std::mem::take(&mut self.addition)
    }

    /// What is kept now, by all processes of the user; what came meanwhile is on top of it.
    pub fn renew(&mut self, mut kept: Kept) {
        self.addition.to(&mut kept);
        self.kept = kept;
    }

    /// What is to be kept.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// C_demand of each application, the last used first.
    pub fn applications(&self) -> Vec<(&Application, Demand)> {
        self.kept.applications.all()
    }

    /// The last decisions, the newest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter().rev()
    }

    /// What is expected still, of programs' connections and of what flows beside them. Who has moved more than was expected is expected to go on as
    /// long again: ours; by Eq. (1) alone a long flow would weigh nothing from then on.
    fn load(&self, index: u32) -> u64 {
        let left = |open: &Open| {
            let moved = open.moved.0.saturating_add(open.moved.1);
            open.expected.checked_sub(moved).filter(|left| *left > 0).unwrap_or(moved)
        };
        let active = self.by(index).filter(|open| self.ticked.since(open.active) < RESTS);
        active.fold(self.flow(index), |sum: u64, open| sum.saturating_add(left(open)))
    }

    fn by(&self, index: u32) -> impl Iterator<Item = &Open> {
        self.open.values().filter(move |open| open.interface == index)
    }

    fn name(&self, index: u32) -> Option<String> {
        self.present.iter().find(|p| p.index == index).map(|p| p.name.clone())
    }

    fn decide(&mut self, application: &Application, to: &str, index: u32, why: String, at: Time) {
        let Some(interface) = self.name(index) else { return };
        if self.decisions.len() >= MOST_DECISIONS {
            self.decisions.pop_front();
        }
        let (application, destination) = (application.clone(), to.to_owned());
        self.decisions.push_back(Decision { application, destination, interface, why, at });
    }
}
