//! The table of interfaces: which of them gets a connection. No I/O; the time is an argument.

mod caps;
mod connections;
mod deciding;
mod keeping;
mod probing;
mod rates;
mod reasons;
mod shown;
mod thrift;
mod usable;

pub use shown::Shown;
pub use thrift::Flow;

use super::{
    caps::Caps,
    doubt::{Doubts, Server, Why},
    estimate::Estimate,
    kept::{Addition, Kept},
    settings::Settings,
};
use probing::Probes;
use rates::{Flowing, Second};
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};
use thalweg_bond::{Affinity, Application, ConnectionMethod, ConnectionScheduler, Thrift};
use thalweg_units::{Time, WallTime};

/// Decisions that are remembered for who asks why. Of more the oldest is forgotten.
const MOST_DECISIONS: usize = 64;

/// Estimates of interfaces that are gone: a dock, some networks, tethered telephones. Of more,
/// those heard of longest ago are forgotten.
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
    /// It waits for a request: it is no load.
    rests: bool,
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
    pub fn follow(&mut self, present: Vec<Present>, now: Time, today: WallTime) {
        for gone in self.present.iter().filter(|old| !present.contains(old)) {
            self.affinity.gone(gone.index);
            self.doubts.forget(gone.index);
        }
        self.present = present;
        let is_there = |index: &u32| self.present.iter().any(|present| present.index == *index);
        self.flowing.retain(|index, _| is_there(index));
        self.forget_old_estimates(now);
        for name in self.present.iter().map(|present| &present.name) {
            let is_new = !self.estimates.contains_key(name);
            if let Some(kept) = self.kept.estimate(name, (now, today)).filter(|_| is_new) {
                self.estimates.insert(name.clone(), kept);
            }
        }
    }

    /// Names of interfaces come and go: of those that are gone the estimates heard of last are kept.
    fn forget_old_estimates(&mut self, now: Time) {
        let is_gone = |name: &&String| self.present.iter().all(|present| present.name != **name);
        let gone: Vec<String> = self.estimates.keys().filter(is_gone).cloned().collect();
        let age = |name: &String| self.estimates[name].heard(now).unwrap_or(Duration::MAX);
        let mut gone: Vec<_> = gone.into_iter().map(|name| (age(&name), name)).collect();
        gone.sort();
        for (_, name) in gone.iter().skip(MOST_GONE) {
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

    /// The kernel's index of an interface that is usable now.
    pub fn index_of(&self, name: &str) -> Option<u32> {
        self.present.iter().find(|p| p.name == name).map(|p| p.index)
    }

    /// What the interface with this index is called, if it is there.
    pub fn name(&self, index: u32) -> Option<String> {
        self.present.iter().find(|p| p.index == index).map(|p| p.name.clone())
    }
}
