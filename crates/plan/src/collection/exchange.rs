//! Several destinations for different data: a multicommodity flow.
//!
//! §I: "we can solve the multi-destination problem as well (by employing either multicommodity flow algorithms, or a
//! single commodity min-cost flow algorithm …, depending on the requirements)". If any data serves any destination,
//! [`Problem::new`] is the single commodity. Here each host's data has its own destination, and the fluid plan is a
//! linear program.

use super::{
    Fluid, HostLimits, Leg, PlanError, Problem, ProblemError, Supply,
    lp::{self, Commodity},
};
use std::collections::BTreeMap;

/// Data of one host for one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// The host that has it.
    pub from: u32,
    /// The host that wants it.
    pub to: u32,
    /// The amount in data units.
    pub units: u64,
}

/// Data for several destinations over common legs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The same data as if it were of one kind.
    problem: Problem,
    /// (source, units) by destination.
    parcels: BTreeMap<u32, Vec<(u32, u64)>>,
}

impl Exchange {
    /// Creates an exchange of these parcels over these legs. Parcels that are already at their destination are left
    /// out.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] for an unknown host or too many units.
    pub fn new(hosts: u32, legs: &[Leg], parcels: &[Parcel]) -> Result<Self, ProblemError> {
        let moves = |parcel: &&Parcel| parcel.from != parcel.to && parcel.units > 0;
        let mut by = BTreeMap::<u32, Vec<(u32, u64)>>::new();
        for parcel in parcels.iter().filter(moves) {
            by.entry(parcel.to).or_default().push((parcel.from, parcel.units));
        }
        let all = || by.values().flatten();
        let supplies = all().map(|(host, units)| Supply { host: *host, units: *units, ready: 0 });
        // Summed as `u128`: too many units are refused below instead of wrapped.
        let demand = |from: &Vec<(u32, u64)>| from.iter().map(|from| u128::from(from.1)).sum();
        let demands = by.iter().map(|(to, from)| {
            let units: u128 = demand(from);
            (*to, u64::try_from(units).unwrap_or(u64::MAX))
        });
        let problem = Problem::new(hosts, legs, supplies.collect(), demands.collect())?;
        Ok(Self { problem, parcels: by })
    }

    /// See [`Problem::with_limits`].
    pub fn with_limits(mut self, host: u32, limits: HostLimits) -> Self {
        self.problem = self.problem.with_limits(host, limits);
        self
    }

    /// See [`Problem::with_shared`].
    pub fn with_shared(mut self, legs: &[(u32, u32)], per_slot: u64) -> Self {
        self.problem = self.problem.with_shared(legs, per_slot);
        self
    }

    /// The fastest plan of constant rates in which all parcels arrive. Each path ends at its parcel's destination.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] if a host has no path to a destination of its data; otherwise as
    /// [`Problem::fluid_shared`].
    pub fn fluid(&self) -> Result<Fluid, PlanError> {
        for (to, from) in &self.parcels {
            let mut alone = self.problem.clone();
            let supply =
                |(host, units): &(u32, u64)| Supply { host: *host, units: *units, ready: 0 };
            alone.supplies = from.iter().map(supply).collect();
            alone.demands = vec![(*to, from.iter().map(|from| from.1).sum())];
            alone.check_ways()?;
        }
        let of = |(to, from): (&u32, &Vec<(u32, u64)>)| Commodity {
            from: from.clone(),
            to: vec![(*to, from.iter().map(|from| from.1).sum())],
        };
        let commodities: Vec<Commodity> = self.parcels.iter().map(of).collect();
        Ok(lp::solve(&self.problem, &commodities, lp::Goal::Fastest)?.fluid(&self.problem))
    }
}
