//! The plan: which data goes where in which slot.

use super::{Objective, Problem, decompose::decompose, expanded::Expanded, horizon};
use crate::mincost::{Infeasible, NetworkError};
use thiserror::Error;

/// Data that leaves its source in a slot and goes a leg further in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedPath {
    /// The host that has the data.
    pub source: u32,
    /// The slot of its first transfer; before, the source holds it.
    pub start: u32,
    /// The hosts it is sent to, in turn; the last is its destination.
    pub via: Vec<u32>,
    /// Data units, at least 1.
    pub units: u64,
}

impl TimedPath {
    /// Its transfers: (slot, from, to).
    pub fn transfers(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        let from = std::iter::once(self.source).chain(self.via.iter().copied());
        (self.start..).zip(from).zip(&self.via).map(|((slot, from), to)| (slot, from, *to))
    }

    /// Where it ends.
    pub fn last(&self) -> u32 {
        self.via.last().copied().unwrap_or(self.source)
    }

    /// The slot at whose beginning all of it is there.
    pub fn end(&self) -> u32 {
        self.start + self.via.len() as u32
    }
}

/// A coordinated plan: f_T, split into paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timetable {
    /// T, the makespan in slots.
    pub slots: u32,
    /// The paths, in the order of §IV's decomposition.
    pub paths: Vec<TimedPath>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// No way leads from a host with data to a destination.
    #[error(
        "no measured path leads from host {0} to the destination; legs that carry less than a data unit in a slot \
         do not count: take a smaller unit or a longer slot if that is why"
    )]
    NoPath(u32),
    /// More slots than a plan can have.
    #[error("the data needs more than {most} slots: take a longer slot")]
    TooLong {
        /// The most that are tried.
        most: u32,
    },
    /// Costs do not fit 64 bits.
    #[error("the data units are too fine for this many slots: take larger ones")]
    TooFine,
    /// It cannot be done in the slots that were asked for.
    #[error("{stranded} data units do not arrive within {slots} slots")]
    TooShort {
        /// The slots asked for.
        slots: u32,
        /// What is left over.
        stranded: u64,
    },
    /// Files that are not split have one destination, and legs their own capacities.
    #[error("whole files are planned for one destination, without shared capacities")]
    OneDestination,
    /// A set of legs that takes nothing cuts data off.
    #[error("the capacity that legs share lets nothing through to the destination")]
    Shut,
    /// A linear program has no answer.
    #[error(
        "the linear program was not solved ({0}): leave the shared capacities out, or take larger data units"
    )]
    Unsolved(String),
    /// A linear program is too large to be solved in reasonable time.
    #[error(
        "a timetable with shared capacities has {variables} unknowns, more than {most}: take a longer slot, or the fluid plan"
    )]
    TooLarge {
        /// Its unknowns.
        variables: usize,
        /// The most that are tried.
        most: usize,
    },
}

impl From<NetworkError> for PlanError {
    fn from(_: NetworkError) -> Self {
        // A time-expanded graph is balanced and closed; only the range can be left.
        Self::TooFine
    }
}

impl Problem {
    /// The paper's plan: the smallest T, and in it the cheapest flow by [`Objective::Paper`]. With sets
    /// of legs that share a capacity: for small graphs, T within few slots of the smallest.
    ///
    /// # Errors
    ///
    /// [`PlanError`] if there is no way, or the grid is too fine.
    pub fn timetable(&self) -> Result<Timetable, PlanError> {
        if !self.shared.is_empty() {
            return self.timetable_shared();
        }
        self.timetable_within(self.smallest_horizon()?, Objective::Paper)
    }

    /// T: the fewest slots in which all data arrives, 0 if there is none.
    ///
    /// # Errors
    ///
    /// As [`timetable`](Self::timetable).
    pub fn smallest_horizon(&self) -> Result<u32, PlanError> {
        if !self.shared.is_empty() {
            return Ok(self.timetable_shared()?.slots);
        }
        self.check_ways()?;
        horizon::smallest(self)
    }

    /// The plan that is cheapest by `objective` among those that end within `slots`.
    ///
    /// # Errors
    ///
    /// [`PlanError::TooShort`] if that cannot be, else as [`timetable`](Self::timetable).
    pub fn timetable_within(
        &self,
        slots: u32,
        objective: Objective,
    ) -> Result<Timetable, PlanError> {
        if !self.shared.is_empty() {
            let stranded = self.units();
            let plan = self.shared_within(slots, objective)?.filter(|plan| plan.slots <= slots);
            return plan.ok_or(PlanError::TooShort { slots, stranded });
        }
        let expanded = Expanded::new(self, slots, objective)?;
        let stranded = |why: Infeasible| PlanError::TooShort { slots, stranded: why.stranded };
        let flow = expanded.network.cheapest().map_err(stranded)?;
        Ok(Timetable { slots, paths: decompose(self, &expanded, &flow) })
    }

    /// Every host with data has a way to a destination.
    pub(super) fn check_ways(&self) -> Result<(), PlanError> {
        let mut reaches: Vec<bool> =
            (0..self.hosts).map(|host| self.is_destination(host)).collect();
        // At most one round per host of a way.
        for _ in 0..self.hosts {
            let mut more = false;
            for leg in &self.legs {
                let reached = reaches[leg.to as usize] && !reaches[leg.from as usize];
                reaches[leg.from as usize] |= reached;
                more |= reached;
            }
            if !more {
                break;
            }
        }
        let cut_off = |supply: &&super::Supply| supply.units > 0 && !reaches[supply.host as usize];
        match self.supplies.iter().find(cut_off) {
            Some(supply) => Err(PlanError::NoPath(supply.host)),
            None => Ok(()),
        }
    }
}

impl Timetable {
    /// Units that each host holds of others' data at the most, at a slot's end; destinations
    /// hold none. By host.
    pub fn storage(&self, hosts: u32) -> Vec<u64> {
        let mut held = vec![std::collections::BTreeMap::<u32, u64>::new(); hosts as usize];
        for path in &self.paths {
            for (slot, _, to) in path.transfers().filter(|hop| hop.2 != path.last()) {
                *held[to as usize].entry(slot).or_default() += path.units;
            }
        }
        held.iter().map(|slots| slots.values().max().copied().unwrap_or(0)).collect()
    }
}
