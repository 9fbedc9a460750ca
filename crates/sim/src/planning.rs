//! Collection problems of a given size, for measuring the cost of planning them.

use crate::random;
use thalweg_plan::collection::{Leg, PlanError, Problem, ProblemError};

/// Data units a slot of the slowest leg. In the paper "typical values of T, b, and C are 150, 8, and 30"; 2.5 Mbit/s
/// moves 38 units of 64 KiB in 8 s.
const SLOWEST: f64 = 2.0;
/// Data units a slot of the fastest leg.
const FASTEST: f64 = 38.0;

/// A host's amount is half to one and a half times the mean, as in the paper (25 to 75 MB).
const SPREAD: (f64, f64) = (0.5, 1.5);

/// Why there is no problem of this size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanningError {
    /// The problem cannot be stated.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The problem cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// A collection from `hosts` − 1 sources at the last host whose smallest T is about `slots`.
///
/// All pairs have a leg, with rates spread evenly on a logarithmic scale. Amounts are such that the fluid plan ends two
/// slots before, which a time-expanded plan needs for its staging.
///
/// # Errors
///
/// [`PlanningError`] if there are no two hosts, or no slots.
pub fn collection(seed: u64, hosts: u32, slots: u32) -> Result<Problem, PlanningError> {
    let mut random = random::stream(seed, "planning", u64::from(hosts));
    let mut between = |low: f64, high: f64| low + (high - low) * random::unit(&mut random);
    let destination = hosts.saturating_sub(1);
    let mut legs = Vec::new();
    for from in 0..destination {
        for to in (0..hosts).filter(|to| *to != from) {
            let per_slot = between(SLOWEST.ln(), FASTEST.ln()).exp().round() as u64;
            legs.push(Leg { from, to, per_slot });
        }
    }
    let shares: Vec<f64> = (0..destination).map(|_| between(SPREAD.0, SPREAD.1)).collect();
    let of = |factor: f64| {
        let units = |share: &f64| (share * factor).round() as u64;
        let amounts: Vec<u64> = shares.iter().map(units).chain([0]).collect();
        Problem::collect(&amounts, destination, &legs)
    };
    // The fluid T* grows in proportion to the amounts.
    let sample = 1e6;
    let took = of(sample)?.fluid()?.slots;
    Ok(of(sample * f64::from(slots.saturating_sub(2)).max(0.5) / took.max(1e-9))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_have_the_size_that_is_asked_for() {
        for (hosts, slots) in [(2, 4), (8, 20), (12, 40)] {
            let problem = collection(3, hosts, slots).unwrap();
            let smallest = problem.smallest_horizon().unwrap();
            assert!(smallest.abs_diff(slots) <= 2, "{hosts} hosts: {smallest} for {slots}");
        }
    }
}
