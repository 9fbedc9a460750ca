//! The smallest T (§III): doubling, then binary search.

use super::{Objective, PlanError, Problem, time_expanded::TimeExpandedNetwork};

/// The most slots of a plan. A plan with more has too small a slot: 16 million vertices at 250 hosts.
const MOST_SLOTS: u32 = 1 << 16;

/// The fewest slots in which everything arrives.
///
/// "we test sequentially if a feasible flow exists in G_1, G_2, G_4 … until we find a minimum T* …; then … a binary
/// search in the range T*/2 + 1 and T*". O(log T) maximum flows.
pub fn smallest(problem: &Problem) -> Result<u32, PlanError> {
    if problem.units() == 0 {
        return Ok(0);
    }
    let mut high = 1;
    while !feasible(problem, high)? {
        high = doubled(high)?;
    }
    let mut low = high / 2;
    while low + 1 < high {
        let middle = low.midpoint(high);
        if feasible(problem, middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}

/// Doubles the number of slots; an error beyond [`MOST_SLOTS`].
pub fn doubled(slots: u32) -> Result<u32, PlanError> {
    let more = slots.max(1) * 2;
    if more > MOST_SLOTS { Err(PlanError::TooLong { most: MOST_SLOTS }) } else { Ok(more) }
}

fn feasible(problem: &Problem, slots: u32) -> Result<bool, PlanError> {
    let expanded = TimeExpandedNetwork::new(problem, slots, Objective::MeanCompletion)?;
    Ok(expanded.network.movable() == problem.units())
}
