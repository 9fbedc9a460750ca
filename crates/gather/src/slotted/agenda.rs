//! Decides which transfers may begin, for each kind of schedule.

use super::{Scheme, lanes::Lanes, merged_streams::MergedStreams};
use rand_xoshiro::{Xoshiro256PlusPlus, rand_core::SeedableRng as _};
use std::{collections::BTreeMap, time::Duration};
use thalweg_plan::collection::{DirectRelease, Release, Rule, Timetable, Transfer};

/// A transfer that may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferStart {
    /// The agenda's key of this transfer.
    pub key: usize,
    /// Its path, hop and slot in the timetable; `None` for direct methods.
    pub hop: Option<Hop>,
    /// The sending participant.
    pub from: u32,
    /// The receiving participant.
    pub to: u32,
    /// The amount of data.
    pub load: TransferLoad,
}

/// A hop of a timetable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    pub path: usize,
    /// The number of hops before this one.
    pub index: usize,
    /// Its slot in the plan.
    pub slot: u32,
}

/// The amount of data that a transfer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferLoad {
    /// This many data units.
    Units(u64),
    /// All data of a direct path, in data units: one connection carries all of it.
    Stream(u64),
    /// One of this many equal parts of the source's data.
    Share(u32),
}

/// A schedule during its execution.
#[derive(Debug)]
pub enum Agenda {
    /// The transfers of a timetable.
    Paths(TimetableTransfers),
    /// The connections of a direct method.
    Direct(DirectTransfers),
}

/// The transfers of a timetable.
#[derive(Debug)]
pub struct TimetableTransfers {
    release: Release,
    timetable: Timetable,
    /// Paths that carry no data, or none any more.
    is_empty: Vec<bool>,
    /// Transfers that wait for a free place on their leg.
    lanes: Lanes,
    /// Best paths without an intermediate: the first parcel carries all of their data.
    streams: MergedStreams,
    /// The last slot of which a transfer has begun.
    slot: u32,
}

/// The sources' connections of a direct method.
#[derive(Debug)]
pub struct DirectTransfers {
    release: DirectRelease,
    random: Xoshiro256PlusPlus,
    over: u32,
    /// Connections that are not done, by source.
    left: BTreeMap<u32, u32>,
    to: u32,
}

impl Agenda {
    /// Creates an agenda of which nothing has begun. `sources` are the participants with data, `to` is the destination.
    pub fn new(scheme: Scheme, sources: Vec<u32>, to: u32, seed: u64) -> Self {
        match scheme {
            Scheme::Paths(timetable, rule) => Self::Paths(TimetableTransfers::new(timetable, rule)),
            Scheme::Direct(method, over) => Self::Direct(DirectTransfers {
                left: sources.iter().map(|source| (*source, over.max(1))).collect(),
                release: DirectRelease::new(method, sources),
                random: Xoshiro256PlusPlus::seed_from_u64(seed),
                over: over.max(1),
                to,
            }),
        }
    }

    /// Returns the transfers that begin now; `now` is the time since the start.
    pub fn due(&mut self, now: Duration) -> Vec<TransferStart> {
        match self {
            Self::Paths(paths) => paths.due(now),
            Self::Direct(direct) => direct.due(now),
        }
    }

    /// Marks a transfer as over, whether it failed or not.
    pub fn finish(&mut self, key: usize) {
        match self {
            Self::Paths(paths) => paths.finish(key),
            Self::Direct(direct) => direct.finish(key as u32),
        }
    }

    /// The next time after `now` at which a transfer may begin even if none ends before.
    pub fn wakes(&self, now: Duration) -> Option<Duration> {
        match self {
            Self::Paths(paths) => paths.release.wakes(now),
            Self::Direct(direct) => direct.release.wakes(),
        }
    }

    /// Whether all transfers are over.
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Paths(paths) => paths.release.is_finished(),
            Self::Direct(direct) => direct.release.is_finished(),
        }
    }

    /// The timetable's part, if the schedule has one.
    pub fn paths(&self) -> Option<&TimetableTransfers> {
        match self {
            Self::Paths(paths) => Some(paths),
            Self::Direct(_) => None,
        }
    }

    /// Marks a path as empty: its transfers count as done when they are due.
    pub fn mark_empty(&mut self, path: usize) {
        if let Self::Paths(paths) = self {
            paths.is_empty[path] = true;
        }
    }
}

impl TimetableTransfers {
    fn new(timetable: Timetable, rule: Rule) -> Self {
        // On its own best path a host waits for no other. `Delay` with zero time lets each parcel leave, and continue,
        // as soon as its leg has a free place.
        let (rule, lanes, streams) = match rule {
            Rule::Chain => {
                (Rule::Delay(Duration::ZERO), Lanes::narrow(), MergedStreams::of_direct(&timetable))
            }
            rule => (rule, Lanes::wide(), MergedStreams::default()),
        };
        let mut is_empty = vec![false; timetable.paths.len()];
        streams.absorbed().for_each(|path| is_empty[path] = true);
        let release = Release::new(&timetable, rule);
        Self { release, is_empty, lanes, streams, timetable, slot: 0 }
    }

    pub fn timetable(&self) -> &Timetable {
        &self.timetable
    }

    /// The last slot of which a transfer has begun.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    fn due(&mut self, now: Duration) -> Vec<TransferStart> {
        let mut starts = Vec::new();
        loop {
            for key in self.release.due(now) {
                self.lanes.wait(self.leg(key), key);
            }
            let Some(key) = self.lanes.next() else { return starts };
            let transfer = self.release.transfers()[key];
            self.slot = self.slot.max(transfer.slot);
            if self.is_empty[transfer.path] {
                self.finish(key);
            } else {
                starts.push(self.start(key, transfer));
            }
        }
    }

    fn finish(&mut self, key: usize) {
        self.lanes.leave(self.leg(key));
        self.release.done(key);
    }

    /// A leg counts separately for each source, because sources share no connections.
    fn leg(&self, key: usize) -> (u32, u32, u32) {
        let Transfer { path, from, to, .. } = self.release.transfers()[key];
        (self.timetable.paths[path].source, from, to)
    }

    fn start(&self, key: usize, transfer: Transfer) -> TransferStart {
        let Transfer { path, slot, from, to, units } = transfer;
        let index = (slot - self.timetable.paths[path].start) as usize;
        let load =
            self.streams.units(path).map_or(TransferLoad::Units(units), TransferLoad::Stream);
        TransferStart { key, hop: Some(Hop { path, index, slot }), from, to, load }
    }
}

impl DirectTransfers {
    fn due(&mut self, now: Duration) -> Vec<TransferStart> {
        let (to, over) = (self.to, self.over);
        let due = self.release.due(now, &mut self.random);
        let start = |from: u32| {
            let load = TransferLoad::Share(over);
            std::iter::repeat_n(
                TransferStart { key: from as usize, hop: None, from, to, load },
                over as usize,
            )
        };
        due.into_iter().flat_map(start).collect()
    }

    fn finish(&mut self, source: u32) {
        let Some(left) = self.left.get_mut(&source).filter(|left| **left > 0) else { return };
        *left -= 1;
        if *left == 0 {
            self.release.done();
        }
    }
}
