//! Who gets a connection; no I/O, time as an argument.

use super::{estimate::Estimate, kept::Kept, settings::Settings};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_bond::{
    Affinity, Application, Candidate, ConnectionMethod, ConnectionScheduler, Demand, Tier, allowed,
    period_start,
};
use thalweg_units::{Time, WallTime};

/// Decisions that are remembered for who asks why.
const MOST_DECISIONS: usize = 64;

/// The primary interfaces are full when what is under way on each takes longer than this.
const FULL: Duration = Duration::from_secs(10);

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
    /// Whether it stands; before, it is being dialled.
    stands: bool,
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
}

/// How an interface is, for who asks.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// When it is used.
    pub tier: Tier,
    /// What it brings.
    pub estimate: Estimate,
    /// Bytes both ways in this period of its cap, or of the month.
    pub used: u64,
    /// Its cap, bytes.
    pub cap: Option<u64>,
    /// Connections by it.
    pub connections: usize,
    /// What they are still expected to move, bytes.
    pub load: u64,
}

/// Where a connection is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Assigned {
    /// Wherever the kernel sends it: there is no choice.
    Free,
    /// By these interfaces, the first at once and each later one if those before fail; known
    /// by this number from now on.
    By(u64, Vec<u32>),
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
    second: BTreeMap<u32, (u64, u64)>,
    ticked: Time,
    open: BTreeMap<u64, Open>,
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
            ticked: now,
            open: BTreeMap::new(),
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
        }
        self.present = present;
    }

    /// A second or so has passed: estimates are made of what it brought.
    pub fn tick(&mut self, now: Time) {
        let took = now.since(std::mem::replace(&mut self.ticked, now));
        for (index, (down, up)) in std::mem::take(&mut self.second) {
            if let Some(name) = self.name(index) {
                self.estimates.entry(name).or_default().carried(down, up, took, now);
            }
        }
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
        let usable = self.usable(&application, destination, today);
        let candidates: Vec<Candidate> = usable.iter().map(|at| self.candidate(*at)).collect();
        let expected = self.kept.applications.expected(&application);
        let held = self.affinity.of(destination, now);
        let held = held.filter(|held| candidates.iter().any(|c| c.interface == *held));
        let picked = match held {
            Some(held) => Some((held, "this destination's connections keep to it".to_owned())),
            None => self
                .scheduler
                .pick(&candidates, expected, application.nature())
                .map(|pick| (pick.interface, pick.why.to_string())),
        };
        let Some((first, why)) = picked else { return Assigned::Nowhere };
        let others = candidates.iter().map(|c| c.interface).filter(|index| *index != first);
        let order = std::iter::once(first).chain(others).collect();
        self.decide(&application, destination, first, why);
        let id = self.next;
        self.next += 1;
        let (destination, interface) = (destination.to_owned(), first);
        let open =
            Open { application, destination, interface, expected, moved: (0, 0), stands: false };
        self.open.insert(id, open);
        Assigned::By(id, order)
    }

    /// The connection stands, by this interface, with this round trip.
    pub fn stands(&mut self, id: u64, interface: u32, rtt: Option<Duration>, now: Time) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let missed = std::mem::replace(&mut open.interface, interface) != interface;
        open.stands = true;
        let (application, destination) = (open.application.clone(), open.destination.clone());
        self.affinity.went(&destination, interface, now);
        if let (Some(rtt), Some(name)) = (rtt, self.name(interface)) {
            self.estimates.entry(name).or_default().round_trip(rtt);
        }
        if missed {
            let why = "what was tried before it did not answer".to_owned();
            self.decide(&application, &destination, interface, why);
        }
    }

    /// The connection has moved so many bytes by now, to and from this host.
    pub fn moved(&mut self, id: u64, down: u64, up: u64, today: WallTime) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let more = (down.saturating_sub(open.moved.0), up.saturating_sub(open.moved.1));
        open.moved = (down.max(open.moved.0), up.max(open.moved.1));
        let interface = open.interface;
        let second = self.second.entry(interface).or_default();
        *second = (second.0.saturating_add(more.0), second.1.saturating_add(more.1));
        if let Some(name) = self.name(interface) {
            let start = period_start(today, self.settings.reset_day(&name));
            self.kept.spend(&name, more.0.saturating_add(more.1), start);
        }
    }

    /// The connection has ended, or came to nothing.
    pub fn ended(&mut self, id: u64) {
        if let Some(open) = self.open.remove(&id).filter(|open| open.stands) {
            let bytes = open.moved.0.saturating_add(open.moved.1);
            self.kept.applications.ended(&open.application, bytes);
        }
    }

    /// Whether the cap of the interface by which this connection goes is used up.
    pub fn is_used_up(&self, id: u64, today: WallTime) -> bool {
        let name = self.open.get(&id).and_then(|open| self.name(open.interface));
        name.is_some_and(|name| self.left(&name, today) == Some(0))
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

    /// The interfaces as they are.
    pub fn show(&self, today: WallTime) -> Vec<Shown> {
        let shown = |present: &Present| {
            let policy = self.settings.policy(&present.name);
            Shown {
                name: present.name.clone(),
                tier: policy.tier,
                estimate: self.estimates.get(&present.name).cloned().unwrap_or_default(),
                used: self.used(&present.name, today),
                cap: policy.cap.map(|cap| cap.bytes),
                connections: self.by(present.index).count(),
                load: self.load(present.index),
            }
        };
        self.present.iter().map(shown).collect()
    }

    /// The places in `present` that this connection may go by.
    fn usable(&self, application: &Application, to: &str, today: WallTime) -> Vec<usize> {
        let names: Vec<&str> = self.present.iter().map(|p| p.name.as_str()).collect();
        let ruled = self.settings.rules.filter(application, to, &names);
        let of = |at: &usize| {
            let policy = self.settings.policy(names[*at]);
            (policy, self.left(names[*at], today) != Some(0))
        };
        let policies: Vec<_> = ruled.iter().map(of).collect();
        let primary = |at: &&usize| self.settings.policy(names[**at]).tier == Tier::Primary;
        let is_full = ruled.iter().filter(primary).all(|at| self.is_full(*at));
        allowed(&policies, is_full).into_iter().map(|at| ruled[at]).collect()
    }

    fn is_full(&self, at: usize) -> bool {
        let candidate = self.candidate(at);
        let room = candidate.rate.bytes_in(FULL).as_bytes();
        room > 0 && candidate.load > room
    }

    fn candidate(&self, at: usize) -> Candidate {
        let present = &self.present[at];
        let seen = self.estimates.get(&present.name);
        Candidate {
            interface: present.index,
            rate: seen.map(Estimate::down).unwrap_or_default(),
            load: self.load(present.index),
            rtt: seen.map(Estimate::rtt).unwrap_or_default(),
        }
    }

    /// What is expected still. Who has moved more than was expected is expected to go on as
    /// long again: ours; by Eq. (1) alone a long flow would weigh nothing from then on.
    fn load(&self, index: u32) -> u64 {
        let left = |open: &Open| {
            let moved = open.moved.0.saturating_add(open.moved.1);
            open.expected.checked_sub(moved).filter(|left| *left > 0).unwrap_or(moved)
        };
        self.by(index).fold(0, |sum: u64, open| sum.saturating_add(left(open)))
    }

    fn by(&self, index: u32) -> impl Iterator<Item = &Open> {
        self.open.values().filter(move |open| open.interface == index)
    }

    fn used(&self, name: &str, today: WallTime) -> u64 {
        self.kept.used(name, period_start(today, self.settings.reset_day(name)))
    }

    fn left(&self, name: &str, today: WallTime) -> Option<u64> {
        self.settings.policy(name).left(self.used(name, today))
    }

    fn name(&self, index: u32) -> Option<String> {
        self.present.iter().find(|p| p.index == index).map(|p| p.name.clone())
    }

    fn decide(&mut self, application: &Application, to: &str, index: u32, why: String) {
        let Some(interface) = self.name(index) else { return };
        if self.decisions.len() >= MOST_DECISIONS {
            self.decisions.pop_front();
        }
        let (application, destination) = (application.clone(), to.to_owned());
        self.decisions.push_back(Decision { application, destination, interface, why });
    }
}
