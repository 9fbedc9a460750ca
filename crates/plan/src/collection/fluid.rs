//! The fluid plan: rates instead of slots, for meshes too large for time-expanded graphs.
//!
//! Ours; the paper only has slots. Over a graph that stays as it is, the smallest makespan is
//!
//! ```text
//! T* = max over sets S of hosts:  demand(S) / maxflow(S → D)
//! ```
//!
//! It is found by Newton's method on T (Radzik, *Parametric flows, weighted means of cuts*, 1993):
//! if the sources' rates demand/T do not fit, the cut that stops them says the least T that it
//! lets through; as many largest flows as T has different cuts, which are few.

use super::{
    PlanError, Problem, lp,
    rated::{Left, RatedPath},
};
use crate::maxflow::MaxFlow;

/// A plan of constant rates: every source ends at the same time, T*.
#[derive(Clone, Debug, PartialEq)]
pub struct Fluid {
    /// T* in slots: no schedule over these legs is shorter.
    pub slots: f64,
    /// What each path carries all the time.
    pub paths: Vec<RatedPath>,
}

impl Problem {
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
        if !self.shared.is_empty() {
            return self.fluid_shared();
        }
        self.check_ways()?;
        if self.units() == 0 {
            return Ok(Fluid { slots: 0.0, paths: Vec::new() });
        }
        let mut net = Net::new(self);
        let slots = net.shortest();
        let paths = net.paths(slots);
        Ok(Fluid { slots, paths })
    }

    /// The same plan by linear programming, the only way with capacities on sets of legs.
    ///
    /// # Errors
    ///
    /// [`PlanError::NoPath`] for a host that has no way, [`PlanError::Shut`] if a set's capacity of 0
    /// cuts one off, [`PlanError::Unsolved`] if the solver gives up.
    pub fn fluid_shared(&self) -> Result<Fluid, PlanError> {
        self.check_ways()?;
        let rates = lp::solve(self, &[lp::Commodity::of(self)], lp::Goal::Fastest)?;
        Ok(rates.fluid(self))
    }
}

/// The overlay graph with a source before all supplies and a sink behind all demands.
struct Net<'a> {
    problem: &'a Problem,
    /// A data unit a slot in the flow's whole numbers, so that roundings do not show.
    scale: f64,
    nodes: u32,
    arcs: Vec<(u32, u32, u64)>,
    /// The arcs from here on are the supplies', then the demands'.
    ends: usize,
}

impl<'a> Net<'a> {
    fn new(problem: &'a Problem) -> Self {
        let widest: f64 = problem.legs.iter().map(|leg| leg.per_slot as f64).sum();
        let scale = 2_f64.powi(60) / widest.max(1.0);
        let nodes = 3 * problem.hosts + 2;
        let mut net = Self { problem, scale, nodes, arcs: Vec::new(), ends: 0 };
        let hosts = problem.hosts;
        for leg in &problem.legs {
            let capacity = net.scaled(leg.per_slot as f64);
            net.arcs.push((2 * hosts + leg.from, hosts + leg.to, capacity));
        }
        for (host, limits) in (0..hosts).zip(&problem.limits) {
            let room =
                |limit: Option<u64>| limit.map_or(u64::MAX / 4, |most| net.scaled(most as f64));
            let doors = [
                (hosts + host, host, room(limits.ingress)),
                (host, 2 * hosts + host, room(limits.egress)),
            ];
            net.arcs.extend(doors);
        }
        net.ends = net.arcs.len();
        net
    }

    fn scaled(&self, units: f64) -> u64 {
        (units * self.scale) as u64
    }

    /// T*, by Newton's method from below.
    fn shortest(&mut self) -> f64 {
        // Every unit crosses a leg: all legs full all the time bound it from below.
        let room: u128 = self.problem.legs.iter().map(|leg| u128::from(leg.per_slot)).sum();
        let mut slots = self.problem.units() as f64 / (room.max(1)) as f64;
        loop {
            let (flow, wanted, sent) = self.run(slots);
            // The cut that stops the flow; none if everything fits.
            let longer = if sent < wanted { self.let_through(&flow) } else { None };
            match longer {
                Some(longer) if longer > slots * (1.0 + 1e-9) => slots = longer,
                _ => return slots,
            }
        }
    }

    /// The largest flow if all sources end at `slots`; how much was wanted, how much went.
    fn run(&mut self, slots: f64) -> (MaxFlow, u64, u64) {
        let (source, sink) = (self.nodes - 2, self.nodes - 1);
        self.arcs.truncate(self.ends);
        let rate = |units: u64| self.scaled(units as f64 / slots);
        let supplies =
            self.problem.supplies.iter().map(|from| (source, from.host, rate(from.units)));
        let demands =
            self.problem.demands.iter().map(|(host, units)| (*host, sink, rate(*units) + 1));
        let ends: Vec<_> = supplies.chain(demands).collect();
        let wanted = ends.iter().filter(|arc| arc.0 == source).map(|arc| arc.2).sum();
        self.arcs.extend(ends);
        let mut flow = MaxFlow::new(self.nodes as usize, &self.arcs);
        let sent = flow.run(source, sink);
        (flow, wanted, sent)
    }

    /// The least T at which the smallest cut lets its side's data through.
    fn let_through(&self, flow: &MaxFlow) -> Option<f64> {
        let near = |node: u32| flow.near_source(node);
        let crosses = |arc: &&(u32, u32, u64)| near(arc.0) && !near(arc.1);
        let room: f64 = self.arcs[..self.ends].iter().filter(crosses).map(|arc| arc.2 as f64).sum();
        let inside = self.problem.supplies.iter().filter(|from| near(from.host));
        let stays = self.problem.demands.iter().filter(|demand| near(demand.0));
        let units: u64 = inside.map(|from| from.units).sum();
        let units = units.saturating_sub(stays.map(|demand| demand.1).sum());
        (units > 0 && room > 0.0).then(|| units as f64 / (room / self.scale))
    }

    /// The paths of the flow at T*.
    fn paths(&mut self, slots: f64) -> Vec<RatedPath> {
        let (flow, ..) = self.run(slots);
        let mut left = Left::new(self.problem.hosts);
        for (arc, leg) in self.problem.legs.iter().enumerate() {
            left.sends(leg.from, leg.to, flow.on(arc));
        }
        let first = self.ends + self.problem.supplies.len();
        for (at, (host, _)) in self.problem.demands.iter().enumerate() {
            left.stays(*host, flow.on(first + at));
        }
        let own = self.problem.supplies.iter().enumerate();
        let own = own.map(|(index, supply)| (supply.host, flow.on(self.ends + index)));
        left.paths(own, self.scale)
    }
}
