//! The fluid plan: rates instead of slots, for meshes that are too large for time-expanded graphs.
//!
//! Ours; the paper only has slots. Over a graph that does not change, the smallest makespan is
//!
//! ```text
//! T* = max over sets S of hosts:  demand(S) / maxflow(S → D)
//! ```
//!
//! It is found by Newton's method on T (Radzik, *Parametric flows, weighted means of cuts*, 1993): if the sources'
//! rates demand/T do not fit, the cut that stops them gives the least T at which its data passes. This takes one
//! maximum flow for each different cut that T meets, and these are few.

use super::{
    PlanError, Problem, lp,
    rated_path::{FlowSplitter, RatedPath},
};
use crate::maxflow::MaxFlow;

/// A plan of constant rates: every source ends at the same time, T*.
#[derive(Clone, Debug, PartialEq)]
pub struct Fluid {
    /// T* in slots: no schedule over these legs is shorter.
    pub slots: f64,
    /// Paths, each with its constant rate.
    pub paths: Vec<RatedPath>,
}

/// See [`Problem::fluid`].
pub(super) fn fluid(problem: &Problem) -> Result<Fluid, PlanError> {
    if !problem.shared.is_empty() {
        return fluid_shared(problem);
    }
    problem.check_ways()?;
    if problem.units() == 0 {
        return Ok(Fluid { slots: 0.0, paths: Vec::new() });
    }
    let mut net = FluidNetwork::new(problem);
    let slots = net.shortest();
    let paths = net.paths(slots);
    Ok(Fluid { slots, paths })
}

/// See [`Problem::fluid_shared`].
pub(super) fn fluid_shared(problem: &Problem) -> Result<Fluid, PlanError> {
    problem.check_ways()?;
    let rates = lp::solve(problem, &[lp::Commodity::of(problem)], lp::Goal::Fastest)?;
    Ok(rates.fluid(problem))
}

/// The overlay graph with a source in front of all supplies and a sink behind all demands.
struct FluidNetwork<'a> {
    problem: &'a Problem,
    /// The whole number that stands for one data unit a slot in the flow, so large that rounding does not show.
    scale: f64,
    nodes: u32,
    arcs: Vec<(u32, u32, u64)>,
    /// The index of the first arc of a supply; the demands' arcs follow.
    ends: usize,
}

impl<'a> FluidNetwork<'a> {
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
        // Every unit crosses a leg, so all legs full all the time bound T from below.
        let room: u128 = self.problem.legs.iter().map(|leg| u128::from(leg.per_slot)).sum();
        let mut slots = self.problem.units() as f64 / (room.max(1)) as f64;
        loop {
            let (flow, wanted, sent) = self.run(slots);
            // The cut that stops the flow gives a longer T.
            let longer = if sent < wanted { self.let_through(&flow) } else { None };
            match longer {
                Some(longer) if longer > slots * (1.0 + 1e-9) => slots = longer,
                _ => return slots,
            }
        }
    }

    /// Runs the maximum flow if all sources end at `slots`. Returns it, the wanted flow and the sent flow.
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

    /// The least T at which the minimum cut lets its side's data through.
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
        let mut left = FlowSplitter::new(self.problem.hosts);
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
