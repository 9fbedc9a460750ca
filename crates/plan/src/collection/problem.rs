//! The data to collect, and the legs over which it can go.

use super::{
    Fluid, Objective, PlanError, Timetable,
    best_path::{self, BestPath},
    fluid,
    prices::{self, CurvePoint, PriceError, PricedPlan, Prices},
    shared_legs, timetable,
    whole_files::{self, WholeFiles},
};
use thiserror::Error;

/// A leg of the overlay graph G_H.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The sending host's index.
    pub from: u32,
    /// The receiving host's index.
    pub to: u32,
    /// t·c′(u,v): data units that the leg carries in a slot; 0 means no leg.
    pub per_slot: u64,
}

/// Data that waits at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    pub host: u32,
    /// The amount in data units.
    pub units: u64,
    /// The slot from which it can be sent; the paper's problem has 0.
    pub ready: u32,
}

/// The limits of a host per slot, in data units; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLimits {
    /// The most it sends, over all its legs.
    pub egress: Option<u64>,
    /// The most it receives, over all its legs.
    pub ingress: Option<u64>,
    /// The most data of others that it holds at the end of a slot. Data that arrives in a slot is forwarded in the next
    /// one, so this limits what the host receives; destinations keep their data and have no such limit.
    pub storage: Option<u64>,
}

/// Legs that slow each other: together they carry no more than this.
///
/// §III: "Such knowledge (if available) could be used to specify a capacity function on sets of edges, and one could
/// use Linear Programming to obtain an optimal flow under those constraints."
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedLegs {
    /// The positions of the legs in the problem, each once.
    pub legs: Vec<usize>,
    /// Data units that all of them together carry in a slot.
    pub per_slot: u64,
}

/// A data collection problem on the overlay graph (§III), in data units and slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub(super) hosts: u32,
    pub(super) legs: Vec<Leg>,
    pub(super) supplies: Vec<Supply>,
    pub(super) demands: Vec<(u32, u64)>,
    pub(super) limits: Vec<HostLimits>,
    pub(super) shared: Vec<SharedLegs>,
}

/// Why a problem cannot be planned at all.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProblemError {
    /// A host's index is not below the number of hosts.
    #[error("host {0} is not in the graph")]
    NoSuchHost(u32),
    /// Demands and supplies differ.
    #[error("{supplied} units are supplied and {demanded} demanded")]
    Unbalanced {
        /// Units at the sources.
        supplied: u64,
        /// Units at the destinations.
        demanded: u64,
    },
    /// More than 2⁵⁰ units.
    #[error("there are more than 2^50 data units: use larger data units")]
    TooManyUnits,
}

/// 10 TB in bytes is 2⁴³. The bound is far enough below the 2⁶⁰ of `mincost` that sums cannot reach that.
const MOST_UNITS: u64 = 1 << 50;

impl Problem {
    /// Creates the paper's problem: all data goes to one destination and is ready at once, and hosts have no limits.
    ///
    /// `amounts[h]` is what host h holds, in data units; the destination's own amount is already there. Legs from the
    /// destination and legs without capacity are left out, because they are never used.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] for an unknown host or too many units.
    pub fn collect(amounts: &[u64], destination: u32, legs: &[Leg]) -> Result<Self, ProblemError> {
        let hosts = amounts.len() as u32;
        let supply = |(host, units): (u32, &u64)| Supply { host, units: *units, ready: 0 };
        let away = |supply: &Supply| supply.host != destination && supply.units > 0;
        let supplies: Vec<Supply> = (0..hosts).zip(amounts).map(supply).filter(away).collect();
        let total = supplies.iter().try_fold(0_u64, |sum, s| sum.checked_add(s.units));
        let total = total.ok_or(ProblemError::TooManyUnits)?;
        Self::new(hosts, legs, supplies, vec![(destination, total)])
    }

    /// Creates a problem in which each supply has its own time to get ready, with one or several destinations.
    ///
    /// `demands` lists the destinations and the units that each takes in total, no matter whose.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] if a host is unknown, supplies and demands differ, or there are more than 2⁵⁰ units.
    pub fn new(
        hosts: u32,
        legs: &[Leg],
        supplies: Vec<Supply>,
        demands: Vec<(u32, u64)>,
    ) -> Result<Self, ProblemError> {
        let named = legs.iter().flat_map(|leg| [leg.from, leg.to]);
        let named = named.chain(supplies.iter().map(|supply| supply.host));
        let named = named.chain(demands.iter().map(|demand| demand.0));
        if let Some(host) = named.into_iter().find(|host| *host >= hosts) {
            return Err(ProblemError::NoSuchHost(host));
        }
        let supplied = sum(supplies.iter().map(|supply| supply.units))?;
        let demanded = sum(demands.iter().map(|demand| demand.1))?;
        if supplied != demanded {
            return Err(ProblemError::Unbalanced { supplied, demanded });
        }
        let alone = demands.first().filter(|_| demands.len() == 1).map(|demand| demand.0);
        let used = |leg: &&Leg| leg.per_slot > 0 && leg.from != leg.to && Some(leg.from) != alone;
        let mut legs: Vec<Leg> = legs.iter().filter(used).copied().collect();
        // A leg that moves everything a million times a slot is as good as any faster one.
        let most = supplied.max(1).saturating_mul(1 << 20).min(MOST_UNITS);
        legs.iter_mut().for_each(|leg| leg.per_slot = leg.per_slot.min(most));
        let limits = vec![HostLimits::default(); hosts as usize];
        Ok(Self { hosts, legs, supplies, demands, limits, shared: Vec::new() })
    }

    /// Sets a host's limits; an unknown host is ignored.
    pub fn with_limits(mut self, host: u32, limits: HostLimits) -> Self {
        if let Some(at) = self.limits.get_mut(host as usize) {
            *at = limits;
        }
        self
    }

    /// Adds a set of legs, (from, to), that together carry no more than `per_slot` data units a slot.
    ///
    /// Any bottleneck can have a set, and sets may overlap; pairs without a leg are ignored. A linear program then
    /// makes the plans (docs/planning.md), for some hundred legs.
    pub fn with_shared(mut self, legs: &[(u32, u32)], per_slot: u64) -> Self {
        let inside = |leg: &Leg| legs.contains(&(leg.from, leg.to));
        let legs: Vec<usize> = (0..self.legs.len()).filter(|at| inside(&self.legs[*at])).collect();
        if !legs.is_empty() {
            self.shared.push(SharedLegs { legs, per_slot });
        }
        self
    }

    /// The number of units to move.
    pub fn units(&self) -> u64 {
        self.supplies.iter().map(|supply| supply.units).sum()
    }

    /// The number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// The usable legs, in the order given.
    pub fn legs(&self) -> &[Leg] {
        &self.legs
    }

    /// Whether the host is a destination of data.
    pub(super) fn is_destination(&self, host: u32) -> bool {
        self.demands.iter().any(|demand| demand.0 == host)
    }

    /// The plan of constant rates. Hosts' limits apply, except for storage (nothing is stored) and the times at which
    /// data gets ready.
    ///
    /// Takes O(log) maximum flows on the overlay graph itself; with sets of legs that share a capacity, this is
    /// [`fluid_shared`](Self::fluid_shared).
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] for a host with no path, and as `fluid_shared`.
    pub fn fluid(&self) -> Result<Fluid, PlanError> {
        fluid::fluid(self)
    }

    /// The same plan by linear programming, the only method for capacities on sets of legs.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] for a host with no path, [`PlanError::Shut`] if a set's capacity of 0 cuts one off,
    /// [`PlanError::Unsolved`] if the solver gives up.
    pub fn fluid_shared(&self) -> Result<Fluid, PlanError> {
        fluid::fluid_shared(self)
    }

    /// The cheapest plan of constant rates that ends within `slots`.
    ///
    /// # Errors
    ///
    /// [`PriceError::TooSoon`] if no plan ends in time, otherwise as [`fluid`](Self::fluid).
    pub fn fluid_within(
        &self,
        slots: f64,
        prices: &Prices,
    ) -> Result<PricedPlan<Fluid>, PriceError> {
        prices::fluid_within(self, slots, prices)
    }

    /// The fastest plan of constant rates that costs at most `budget`.
    ///
    /// # Errors
    ///
    /// [`PriceError::OverBudget`] if no plan is so cheap, otherwise as [`fluid`](Self::fluid).
    pub fn fluid_for(&self, budget: f64, prices: &Prices) -> Result<PricedPlan<Fluid>, PriceError> {
        prices::fluid_for(self, budget, prices)
    }

    /// The time–price curve of constant rates, from the fastest plan to the cheapest, with all corners between them, at
    /// most 64. It is straight between two points. With shared capacities, 17 points of it.
    ///
    /// # Errors
    ///
    /// As [`fluid`](Self::fluid).
    pub fn fluid_curve(&self, prices: &Prices) -> Result<Vec<CurvePoint>, PriceError> {
        prices::fluid_curve(self, prices)
    }

    /// The price of the cheapest plan, however long it takes.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] for a host with no path.
    pub fn least_price(&self, prices: &Prices) -> Result<f64, PriceError> {
        prices::least_price(self, prices)
    }

    /// The cheapest timetable that ends within `slots`.
    ///
    /// # Errors
    ///
    /// [`PlanError::TooShort`] if no timetable ends in time.
    pub fn timetable_cheapest(
        &self,
        slots: u32,
        prices: &Prices,
    ) -> Result<PricedPlan<Timetable>, PriceError> {
        prices::timetable_cheapest(self, slots, prices)
    }

    /// The timetable with the fewest slots that costs at most `budget`, by doubling and binary search, since the least
    /// price never rises with the slots.
    ///
    /// # Errors
    ///
    /// [`PriceError::OverBudget`] if no timetable is so cheap, otherwise as [`timetable`](Self::timetable).
    pub fn timetable_for(
        &self,
        budget: f64,
        prices: &Prices,
    ) -> Result<PricedPlan<Timetable>, PriceError> {
        prices::timetable_for(self, budget, prices)
    }

    /// For each host with data, the path whose slowest leg is fastest, "determined independently for each source host";
    /// among equals the shortest.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] for the first host without a path.
    pub fn best_paths(&self) -> Result<Vec<BestPath>, PlanError> {
        best_path::best_paths(self)
    }

    /// [`timetable`](Self::timetable) with capacities on sets of legs.
    ///
    /// # Errors
    ///
    /// [`PlanError::Shut`] or [`PlanError::NoPath`] if there is no path, [`PlanError::TooLarge`] beyond 5,000 legs
    /// times slots, [`PlanError::Unsolved`] if the solver gives up.
    pub(super) fn timetable_shared(&self) -> Result<Timetable, PlanError> {
        shared_legs::timetable_shared(self)
    }

    /// A plan by the linear program within `slots`, which may need more slots in whole units; `None` if the program has
    /// no solution.
    pub(super) fn shared_within(
        &self,
        slots: u32,
        objective: Objective,
    ) -> Result<Option<Timetable>, PlanError> {
        shared_legs::shared_within(self, slots, objective)
    }

    /// The paper's plan: the smallest T, and for this T the cheapest flow by [`Objective::Paper`]. With sets of legs
    /// that share a capacity, T is within a few slots of the smallest, and graphs must be small.
    ///
    /// # Errors
    ///
    /// [`PlanError`] if there is no path, or the grid is too fine.
    pub fn timetable(&self) -> Result<Timetable, PlanError> {
        timetable::timetable(self)
    }

    /// T: the fewest slots in which all data arrives; 0 without data.
    ///
    /// # Errors
    ///
    /// As [`timetable`](Self::timetable).
    pub fn smallest_horizon(&self) -> Result<u32, PlanError> {
        timetable::smallest_horizon(self)
    }

    /// The plan that is cheapest by `objective` among those that end within `slots`.
    ///
    /// # Errors
    ///
    /// [`PlanError::TooShort`] if no plan ends in time, otherwise as [`timetable`](Self::timetable).
    pub fn timetable_within(
        &self,
        slots: u32,
        objective: Objective,
    ) -> Result<Timetable, PlanError> {
        timetable::timetable_within(self, slots, objective)
    }

    /// Checks that every host with data has a path to a destination.
    pub(super) fn check_ways(&self) -> Result<(), PlanError> {
        timetable::check_ways(self)
    }

    /// Assigns a path to each of these files (host, data units); the problem's own supplies do not count.
    ///
    /// O(files · legs) time for each round of the rounding and each file moved. Large numbers of small files are better
    /// split among paths directly.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] for a host with no path; [`PlanError::OneDestination`] with several destinations, or with
    /// sets of legs that share a capacity.
    pub fn whole_files(&self, files: &[(u32, u64)]) -> Result<WholeFiles, PlanError> {
        whole_files::whole_files(self, files)
    }
}

fn sum(mut units: impl Iterator<Item = u64>) -> Result<u64, ProblemError> {
    let total = units.try_fold(0_u64, |sum, more| sum.checked_add(more));
    total.filter(|total| *total <= MOST_UNITS).ok_or(ProblemError::TooManyUnits)
}
