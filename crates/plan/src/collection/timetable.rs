//! The coordinated plan: which data goes where in which slot.

use super::{
    Objective, Problem, decompose::decompose, horizon, time_expanded::TimeExpandedNetwork,
};
use crate::mincost::{Infeasible, NetworkError};
use thiserror::Error;

/// Data that leaves its source in one slot and moves one leg further in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedPath {
    /// The host that has the data.
    pub source: u32,
    /// The slot of its first transfer; until then, the source holds it.
    pub start: u32,
    /// The hosts to which it is sent, in order; the last is its destination.
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

    /// The host at which it ends.
    pub fn last(&self) -> u32 {
        self.via.last().copied().unwrap_or(self.source)
    }

    /// The slot at whose beginning all of it has arrived.
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
    /// No path leads from a host with data to a destination.
    #[error(
        "no measured path leads from host {0} to the destination; legs that carry less than one data unit in a slot \
         are not used: try smaller data units or longer slots"
    )]
    NoPath(u32),
    /// More slots than a plan can have.
    #[error("the data needs more than {most} slots: use longer slots")]
    TooLong {
        /// The most slots that are tried.
        most: u32,
    },
    /// Costs do not fit 64 bits.
    #[error("the data units are too small for this many slots: use larger data units")]
    TooFine,
    /// The data does not arrive in the slots that were asked for.
    #[error("{stranded} data units cannot arrive within {slots} slots")]
    TooShort {
        /// The slots asked for.
        slots: u32,
        /// The units that do not arrive.
        stranded: u64,
    },
    /// Whole files need a single destination, and legs without shared capacities.
    #[error(
        "whole files can be planned only for a single destination and without shared capacities"
    )]
    OneDestination,
    /// A set of legs without capacity cuts data off.
    #[error("legs with a shared capacity of zero cut data off from the destination")]
    Shut,
    /// A linear program has no solution.
    #[error(
        "cannot solve the linear program ({0}): omit the shared capacities, or use larger data units"
    )]
    Unsolved(String),
    /// A linear program is too large to be solved in reasonable time.
    #[error(
        "a timetable with shared capacities needs {variables} variables, more than {most}: use longer slots \
         or the fluid plan"
    )]
    TooLarge {
        /// The number of variables.
        variables: usize,
        /// The most variables that are tried.
        most: usize,
    },
}

impl From<NetworkError> for PlanError {
    fn from(_: NetworkError) -> Self {
        // A time-expanded graph is balanced and has all its vertices; only its numbers can be out of range.
        Self::TooFine
    }
}

/// See [`Problem::timetable`].
pub(super) fn timetable(problem: &Problem) -> Result<Timetable, PlanError> {
    if !problem.shared.is_empty() {
        return problem.timetable_shared();
    }
    timetable_within(problem, smallest_horizon(problem)?, Objective::Paper)
}

/// See [`Problem::smallest_horizon`].
pub(super) fn smallest_horizon(problem: &Problem) -> Result<u32, PlanError> {
    if !problem.shared.is_empty() {
        return Ok(problem.timetable_shared()?.slots);
    }
    check_ways(problem)?;
    horizon::smallest(problem)
}

/// See [`Problem::timetable_within`].
pub(super) fn timetable_within(
    problem: &Problem,
    slots: u32,
    objective: Objective,
) -> Result<Timetable, PlanError> {
    if !problem.shared.is_empty() {
        let stranded = problem.units();
        let plan = problem.shared_within(slots, objective)?.filter(|plan| plan.slots <= slots);
        return plan.ok_or(PlanError::TooShort { slots, stranded });
    }
    let expanded = TimeExpandedNetwork::new(problem, slots, objective)?;
    let stranded = |why: Infeasible| PlanError::TooShort { slots, stranded: why.stranded };
    let flow = expanded.network.cheapest().map_err(stranded)?;
    Ok(Timetable { slots, paths: decompose(problem, &expanded, &flow) })
}

/// See [`Problem::check_ways`].
pub(super) fn check_ways(problem: &Problem) -> Result<(), PlanError> {
    let mut reaches: Vec<bool> =
        (0..problem.hosts).map(|host| problem.is_destination(host)).collect();
    // A path has at most one leg per host, so this takes at most one round per host.
    for _ in 0..problem.hosts {
        let mut more = false;
        for leg in &problem.legs {
            let reached = reaches[leg.to as usize] && !reaches[leg.from as usize];
            reaches[leg.from as usize] |= reached;
            more |= reached;
        }
        if !more {
            break;
        }
    }
    let cut_off = |supply: &&super::Supply| supply.units > 0 && !reaches[supply.host as usize];
    match problem.supplies.iter().find(cut_off) {
        Some(supply) => Err(PlanError::NoPath(supply.host)),
        None => Ok(()),
    }
}

impl Timetable {
    /// The most units of others' data that each host holds at the end of a slot, by host; destinations hold none.
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
