//! What is to be collected, and over which legs.

use super::{
    Fluid, Objective, PlanError, Timetable, fluid,
    prices::{self, Offer, PriceError, Priced, Prices},
    rival::{self, BestPath},
    shared, timetable,
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
    /// t·c′(u,v): data units it takes in a slot; 0 is no leg.
    pub per_slot: u64,
}

/// Data that waits at a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Supply {
    /// The host's index.
    pub host: u32,
    /// How much, in data units.
    pub units: u64,
    /// The slot from which it can be sent; the paper's problem has 0.
    pub ready: u32,
}

/// What a host can do in a slot, in data units; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most it sends, over all its legs.
    pub egress: Option<u64>,
    /// The most it receives, over all its legs.
    pub ingress: Option<u64>,
    /// The most of others' data that it holds at the end of a slot. What comes in a slot goes on in the
    /// next, so that it is a limit on what it receives; the destinations keep the data and have none.
    pub storage: Option<u64>,
}

/// Legs that slow each other: together they take no more than this.
///
/// §III: "Such knowledge (if available) could be used to specify a capacity function on sets of edges,
/// and one could use Linear Programming to obtain an optimal flow under those constraints."
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    /// The legs, as positions in the problem's; each once.
    pub legs: Vec<usize>,
    /// Data units all of them take in a slot.
    pub per_slot: u64,
}

/// A data collection problem on the overlay graph (§III), in data units and slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub(super) hosts: u32,
    pub(super) legs: Vec<Leg>,
    pub(super) supplies: Vec<Supply>,
    pub(super) demands: Vec<(u32, u64)>,
    pub(super) limits: Vec<Limits>,
    pub(super) shared: Vec<Shared>,
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
    #[error("there are more than 2^50 data units: take a larger unit")]
    TooManyUnits,
}

/// 10 TB in bytes are 2⁴³; far enough from the 2⁶⁰ of `mincost` that sums cannot reach it.
const MOST_UNITS: u64 = 1 << 50;

impl Problem {
    /// The paper's problem: all data to one destination, ready at once, no limits at hosts.
    ///
    /// `amounts[h]` is what host h holds, in data units; what the destination holds is there.
    /// Legs from the destination and legs that take nothing are left out: they are never used.
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

    /// Data that gets ready at its own time, for one or several destinations.
    ///
    /// `demands` are destinations with how many units each takes in the end, no matter whose.
    ///
    /// # Errors
    ///
    /// [`ProblemError`] if a host is unknown, supplies and demands differ, or there are more
    /// than 2⁵⁰ units.
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
        // What moves everything a million times a slot is as good as any faster.
        let most = supplied.max(1).saturating_mul(1 << 20).min(MOST_UNITS);
        legs.iter_mut().for_each(|leg| leg.per_slot = leg.per_slot.min(most));
        let limits = vec![Limits::default(); hosts as usize];
        Ok(Self { hosts, legs, supplies, demands, limits, shared: Vec::new() })
    }

    /// The same with a host's limits; an unknown host is passed over.
    pub fn with_limits(mut self, host: u32, limits: Limits) -> Self {
        if let Some(at) = self.limits.get_mut(host as usize) {
            *at = limits;
        }
        self
    }

    /// The same where these legs, (from, to), take no more than `per_slot` data units a slot together.
    ///
    /// A set may be given for any bottleneck, sets may overlap; pairs without a leg are passed over. The
    /// plans are then those of a linear program (docs/planning.md), for some hundred legs.
    pub fn with_shared(mut self, legs: &[(u32, u32)], per_slot: u64) -> Self {
        let inside = |leg: &Leg| legs.contains(&(leg.from, leg.to));
        let legs: Vec<usize> = (0..self.legs.len()).filter(|at| inside(&self.legs[*at])).collect();
        if !legs.is_empty() {
            self.shared.push(Shared { legs, per_slot });
        }
        self
    }

    /// All units that are to move.
    pub fn units(&self) -> u64 {
        self.supplies.iter().map(|supply| supply.units).sum()
    }

    /// The number of hosts.
    pub fn hosts(&self) -> u32 {
        self.hosts
    }

    /// The legs that can be used, as given.
    pub fn legs(&self) -> &[Leg] {
        &self.legs
    }

    /// It is a destination of data.
    pub(super) fn is_destination(&self, host: u32) -> bool {
        self.demands.iter().any(|demand| demand.0 == host)
    }

    /// The plan of constant rates. Limits of hosts count, but for storage (nothing is stored) and
    /// times at which data gets ready.
    ///
    /// O(log) largest flows on the overlay graph itself; with sets of legs that share a capacity
    /// [`fluid_shared`](Self::fluid_shared).
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] for a host that has no way, and as `fluid_shared`.
    pub fn fluid(&self) -> Result<Fluid, PlanError> {
        fluid::fluid(self)
    }

    /// The same plan by linear programming, the only way with capacities on sets of legs.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] for a host that has no way, [`PlanError::Shut`] if a set's capacity of 0
    /// cuts one off, [`PlanError::Unsolved`] if the solver gives up.
    pub fn fluid_shared(&self) -> Result<Fluid, PlanError> {
        fluid::fluid_shared(self)
    }

    /// The cheapest plan of constant rates that ends within `slots`.
    ///
    /// # Errors
    ///
    /// [`PriceError::TooSoon`] if none does, else as [`fluid`](Self::fluid).
    pub fn fluid_within(&self, slots: f64, prices: &Prices) -> Result<Priced<Fluid>, PriceError> {
        prices::fluid_within(self, slots, prices)
    }

    /// The fastest plan of constant rates that costs at most `budget`.
    ///
    /// # Errors
    ///
    /// [`PriceError::OverBudget`] if none does, else as [`fluid`](Self::fluid).
    pub fn fluid_for(&self, budget: f64, prices: &Prices) -> Result<Priced<Fluid>, PriceError> {
        prices::fluid_for(self, budget, prices)
    }

    /// The time–price curve of constant rates: from the fastest plan to the cheapest, with all corners
    /// between, 64 at most; straight between two points. With shared capacities 17 points of it.
    ///
    /// # Errors
    ///
    /// As [`fluid`](Self::fluid).
    pub fn fluid_curve(&self, prices: &Prices) -> Result<Vec<Offer>, PriceError> {
        prices::fluid_curve(self, prices)
    }

    /// The price of the cheapest plan that takes as long as it likes.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] for a host that has no way.
    pub fn least_price(&self, prices: &Prices) -> Result<f64, PriceError> {
        prices::least_price(self, prices)
    }

    /// The cheapest timetable that ends within `slots`.
    ///
    /// # Errors
    ///
    /// [`PlanError::TooShort`] if none does.
    pub fn timetable_cheapest(
        &self,
        slots: u32,
        prices: &Prices,
    ) -> Result<Priced<Timetable>, PriceError> {
        prices::timetable_cheapest(self, slots, prices)
    }

    /// The timetable with the fewest slots that costs at most `budget`: by doubling and binary search,
    /// since the least price never rises with the slots.
    ///
    /// # Errors
    ///
    /// [`PriceError::OverBudget`] if none does, else as [`timetable`](Self::timetable).
    pub fn timetable_for(
        &self,
        budget: f64,
        prices: &Prices,
    ) -> Result<Priced<Timetable>, PriceError> {
        prices::timetable_for(self, budget, prices)
    }

    /// For each host with data the path whose slowest leg is fastest, "determined
    /// independently for each source host"; of equals the shortest.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] for the first host with none.
    pub fn best_paths(&self) -> Result<Vec<BestPath>, PlanError> {
        rival::best_paths(self)
    }

    /// [`timetable`](Self::timetable) with capacities on sets of legs.
    ///
    /// # Errors
    ///
    /// [`PlanError::Shut`] or [`PlanError::NoPath`] if there is no way, [`PlanError::TooLarge`] beyond
    /// 5,000 legs times slots, [`PlanError::Unsolved`] if the solver gives up.
    pub(super) fn timetable_shared(&self) -> Result<Timetable, PlanError> {
        shared::timetable_shared(self)
    }

    /// A plan by the program within `slots`, whose whole units may need more; `None` if it has no answer.
    pub(super) fn shared_within(
        &self,
        slots: u32,
        objective: Objective,
    ) -> Result<Option<Timetable>, PlanError> {
        shared::shared_within(self, slots, objective)
    }

    /// The paper's plan: the smallest T, and in it the cheapest flow by [`Objective::Paper`]. With sets
    /// of legs that share a capacity: for small graphs, T within few slots of the smallest.
    ///
    /// # Errors
    ///
    /// [`PlanError`] if there is no way, or the grid is too fine.
    pub fn timetable(&self) -> Result<Timetable, PlanError> {
        timetable::timetable(self)
    }

    /// T: the fewest slots in which all data arrives, 0 if there is none.
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
    /// [`PlanError::TooShort`] if that cannot be, else as [`timetable`](Self::timetable).
    pub fn timetable_within(
        &self,
        slots: u32,
        objective: Objective,
    ) -> Result<Timetable, PlanError> {
        timetable::timetable_within(self, slots, objective)
    }

    /// Every host with data has a way to a destination.
    pub(super) fn check_ways(&self) -> Result<(), PlanError> {
        timetable::check_ways(self)
    }

    /// A path for each of these files (host, data units); the problem's own supplies do not count.
    ///
    /// O(files · legs) time for each round of the rounding and each file moved. Large numbers of small files
    /// are better split among paths as they are.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] for a host with no way; [`PlanError::OneDestination`] with several, or sets of
    /// legs that share a capacity.
    pub fn whole_files(&self, files: &[(u32, u64)]) -> Result<WholeFiles, PlanError> {
        whole_files::whole_files(self, files)
    }
}

fn sum(mut units: impl Iterator<Item = u64>) -> Result<u64, ProblemError> {
    let total = units.try_fold(0_u64, |sum, more| sum.checked_add(more));
    total.filter(|total| *total <= MOST_UNITS).ok_or(ProblemError::TooManyUnits)
}
