//! When each transfer may begin: PathSync and PathDelay (§IV), and chains of parcels on a host's own best path.

use super::{BestPath, Timetable};
use std::{collections::BTreeMap, time::Duration};

/// How closely the plan's timing is followed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// PathSyncX: a step begins when this share of the previous step's transfers is complete, from 0 to 1 (X/100),
    /// "except, of course, those that are waiting for the previous hop on the same path". 1 is PathSync100.
    Sync(f64),
    /// PathDelay: data leaves its source at the time of its step, with steps of this length, and is forwarded as soon
    /// as a hop is complete. A length other than the plan's is the paper's PathDelayX.
    Delay(Duration),
    /// Each path's data is forwarded as soon as possible, one transfer at a time on a leg of a source. This is how the
    /// non-coordinated method sends its parcels.
    Chain,
}

/// One leg of one path, which a single TCP connection carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The path's index in the timetable.
    pub path: usize,
    /// Its step in the plan.
    pub slot: u32,
    pub from: u32,
    pub to: u32,
    /// Data units.
    pub units: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Begun,
    Done,
}

/// The state of a timetable that is being carried out: which transfers may begin.
///
/// O(transfers) memory; each call to [`due`](Self::due) looks at all transfers.
#[derive(Clone, Debug)]
pub struct Release {
    rule: Rule,
    transfers: Vec<Transfer>,
    state: Vec<Stage>,
    /// The transfers that must be done before each one: its previous hop, and with [`Rule::Chain`] the previous parcel.
    after: Vec<[Option<usize>; 2]>,
    /// By step: the number of transfers, and how many of them are done.
    steps: Vec<(usize, usize)>,
    /// Steps up to this one may begin.
    open: usize,
    /// The number of transfers that are not done.
    left: usize,
}

impl Release {
    /// Creates the state before any transfer has begun.
    pub fn new(timetable: &Timetable, rule: Rule) -> Self {
        let mut release = Self {
            rule,
            transfers: Vec::new(),
            state: Vec::new(),
            after: Vec::new(),
            steps: vec![(0, 0); timetable.slots as usize + 1],
            open: 0,
            left: 0,
        };
        let mut parcels = BTreeMap::new();
        for (path, timed) in timetable.paths.iter().enumerate() {
            let mut hop = None;
            for (slot, from, to) in timed.transfers() {
                let leg = (timed.source, from, to);
                let before = parcels.insert(leg, release.transfers.len());
                let parcel = before.filter(|_| rule == Rule::Chain);
                release.after.push([hop, parcel]);
                hop = Some(release.transfers.len());
                let transfer = Transfer { path, slot, from, to, units: timed.units };
                release.transfers.push(transfer);
                release.steps[slot as usize].0 += 1;
            }
        }
        release.left = release.transfers.len();
        release.state = vec![Stage::Waiting; release.left];
        release.open();
        release
    }

    /// All transfers; the other methods refer to them by index.
    pub fn transfers(&self) -> &[Transfer] {
        &self.transfers
    }

    /// The transfers that may begin now; they count as begun. `now` is the time since the start.
    pub fn due(&mut self, now: Duration) -> Vec<usize> {
        let may = |index: &usize| self.may_begin(*index, now);
        let due: Vec<usize> = (0..self.transfers.len()).filter(may).collect();
        due.iter().for_each(|index| self.state[*index] = Stage::Begun);
        due
    }

    /// Records that a transfer is complete. Repeated and unknown indices are ignored.
    pub fn done(&mut self, transfer: usize) {
        let Some(state) = self.state.get_mut(transfer).filter(|state| **state != Stage::Done)
        else {
            return;
        };
        *state = Stage::Done;
        self.steps[self.transfers[transfer].slot as usize].1 += 1;
        self.left -= 1;
        self.open();
    }

    /// Whether all transfers are complete.
    pub fn is_finished(&self) -> bool {
        self.left == 0
    }

    /// The next time after `now` at which [`due`](Self::due) may return more even if no transfer completes before.
    pub fn wakes(&self, now: Duration) -> Option<Duration> {
        let Rule::Delay(slot) = self.rule else { return None };
        let first =
            |index: &usize| self.state[*index] == Stage::Waiting && self.after[*index][0].is_none();
        let at = |index: usize| slot * self.transfers[index].slot;
        (0..self.transfers.len()).filter(first).map(at).filter(|at| *at > now).min()
    }

    fn may_begin(&self, index: usize, now: Duration) -> bool {
        let before = self.after[index].iter().flatten();
        if self.state[index] != Stage::Waiting || before.into_iter().any(|b| !self.is_done(*b)) {
            return false;
        }
        match self.rule {
            Rule::Sync(_) => self.transfers[index].slot as usize <= self.open,
            // Only the source waits for its time.
            Rule::Delay(slot) => {
                self.after[index][0].is_some() || now >= slot * self.transfers[index].slot
            }
            Rule::Chain => true,
        }
    }

    fn is_done(&self, index: usize) -> bool {
        self.state[index] == Stage::Done
    }

    /// Opens each step whose previous step is complete enough.
    fn open(&mut self) {
        let Rule::Sync(share) = self.rule else { return };
        while let Some((all, done)) = self.steps.get(self.open)
            && *done as f64 >= share * *all as f64
            && self.open + 1 < self.steps.len()
        {
            self.open += 1;
        }
    }
}

impl Timetable {
    /// The non-coordinated plan as parcels: each host's data is cut into parts of what its path carries in a slot, sent
    /// one after the other. The last parcel is the remainder.
    pub fn of_best_paths(paths: &[BestPath], units: &[u64]) -> Self {
        let mut timetable = Self { slots: 0, paths: Vec::new() };
        for (path, units) in paths.iter().zip(units) {
            let mut left = *units;
            for start in 0.. {
                let units = left.min(path.per_slot.max(1));
                if units == 0 {
                    break;
                }
                left -= units;
                let (source, via) = (path.source, path.via.clone());
                timetable.paths.push(super::TimedPath { source, start, via, units });
            }
        }
        timetable.slots = timetable.paths.iter().map(super::TimedPath::end).max().unwrap_or(0);
        timetable
    }
}
