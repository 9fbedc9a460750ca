//! What is to be collected, and over which legs.

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
}

fn sum(mut units: impl Iterator<Item = u64>) -> Result<u64, ProblemError> {
    let total = units.try_fold(0_u64, |sum, more| sum.checked_add(more));
    total.filter(|total| *total <= MOST_UNITS).ok_or(ProblemError::TooManyUnits)
}
