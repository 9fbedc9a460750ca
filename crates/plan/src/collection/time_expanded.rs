//! The time-expanded graph G_T (§III).
//!
//! Host u has vertices u(0) … u(T), and D′ is the virtual destination behind all destinations. Edges:
//!
//! - u(i) → v(i+1) for each leg, t·c′(u,v) units, cost C₁ − C₂·c′(u,v);
//! - holdover u(0) → u(i) where u has data, cost i; there are none from u(i), i > 0, so that data under way is
//!   forwarded at once and not stored;
//! - D(i) → D′, cost 0.
//!
//! Differs where a problem asks for what the paper only names: data that becomes ready in slot r has a vertex of its
//! own with edges to u(i), i ≥ r; a host with limits has a vertex before (ingress, storage) or behind (egress) u(i);
//! each of several destinations has edges of its own to D′(d).

use super::Problem;
use crate::mincost::{Arc, Network, NetworkError, NetworkFlow};

/// What the plan minimizes, among the plans that end in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective<'a> {
    /// The paper's: few transfers, over legs of high capacity, early.
    Paper,
    /// The mean time at which a unit arrives; ties go to fewer transfers.
    MeanCompletion,
    /// The price of a unit on each leg, in the order of [`Problem::legs`].
    Price(&'a [u32]),
}

/// The time-expanded network for a horizon, and the meaning of its arcs.
pub struct TimeExpandedNetwork {
    pub slots: u32,
    pub network: Network,
    /// The number of legs. Their arcs come first, slot by slot.
    legs: usize,
    /// The holdover arcs come next: (supply, slot until which it is held).
    held: Vec<(usize, u32)>,
    /// The index of the first arc to D′. These arcs come last, destination by destination.
    ends: usize,
}

/// Numbers the vertices and collects the arcs.
struct Builder<'a> {
    problem: &'a Problem,
    slots: u32,
    vertices: u32,
    arcs: Vec<Arc>,
    costs: Costs<'a>,
}

/// The costs of one unit of data, C₁ ≫ C₂ ≫ 1: one more transfer costs it more than the narrowest legs all its way, and
/// a unit of capacity outweighs being held until the last slot. The order applies to the sum over all units, so it is
/// not strict for the whole plan: holding many units can outweigh one unit's capacity. T is minimal whatever the costs
/// are.
struct Costs<'a> {
    objective: Objective<'a>,
    c1: i64,
    c2: i64,
}

impl Costs<'_> {
    fn new<'a>(problem: &Problem, slots: u32, objective: Objective<'a>) -> Costs<'a> {
        let c2 = i64::from(slots) + 1;
        let widest = problem.legs.iter().map(|leg| leg.per_slot).max().unwrap_or(1);
        // No leg carries more than everything.
        let widest = widest.min(problem.units());
        // Saturates: the network refuses costs that are out of range.
        let widest = i64::try_from(widest).unwrap_or(i64::MAX).saturating_add(1);
        let c1 = c2.saturating_mul(widest).saturating_mul(i64::from(problem.hosts) + 1);
        Costs { objective, c1, c2 }
    }

    fn transfer(&self, leg: usize, per_slot: u64) -> i64 {
        match self.objective {
            Objective::Paper => {
                let prefer = i64::try_from(per_slot).unwrap_or(i64::MAX);
                self.c1.saturating_sub(self.c2.saturating_mul(prefer))
            }
            Objective::MeanCompletion => 1,
            // Among equal prices, prefer fewer transfers.
            Objective::Price(of) => i64::from(of.get(leg).copied().unwrap_or(0)) * 1024 + 1,
        }
    }

    fn held(&self, slots: u32) -> i64 {
        if self.objective == Objective::Paper { i64::from(slots) } else { 0 }
    }

    /// The cost of an arrival at the end of a slot.
    fn arrived(&self, slot: u32, hosts: u32) -> i64 {
        let late = i64::from(slot) * (i64::from(hosts) + 1);
        if self.objective == Objective::MeanCompletion { late } else { 0 }
    }
}

impl TimeExpandedNetwork {
    /// G_T for `slots` = T.
    ///
    /// # Errors
    ///
    /// [`NetworkError::OutOfRange`] if the units are so fine that costs overflow.
    pub fn new(problem: &Problem, slots: u32, objective: Objective) -> Result<Self, NetworkError> {
        let costs = Costs::new(problem, slots, objective);
        let vertices = problem.hosts * (slots + 1);
        let mut builder = Builder { problem, slots, vertices, arcs: Vec::new(), costs };
        let limit_vertices = builder.limit_vertices();
        builder.transfers(&limit_vertices);
        let (held, mut supplies) = builder.holdovers();
        builder.limited(&limit_vertices);
        let ends = builder.arcs.len();
        supplies.extend(builder.deliveries());
        let mut supply = vec![0; builder.vertices as usize];
        supplies.iter().for_each(|(vertex, units)| supply[*vertex as usize] += units);
        let network = Network::new(supply, builder.arcs)?;
        Ok(Self { slots, network, legs: problem.legs.len(), held, ends })
    }

    /// What each of the problem's legs carries in a slot: (slot, leg, units), units above 0.
    pub fn sent<'a>(
        &'a self,
        flow: &'a NetworkFlow,
    ) -> impl Iterator<Item = (u32, usize, u64)> + 'a {
        let (legs, transfers) = (self.legs.max(1), self.legs * self.slots as usize);
        let of = move |arc| ((arc / legs) as u32, arc % legs, flow.on[arc]);
        (0..transfers).map(of).filter(|sent| sent.2 > 0)
    }

    /// The units that each supply holds back until a slot: (supply, slot, units), units above 0.
    pub fn held<'a>(
        &'a self,
        flow: &'a NetworkFlow,
    ) -> impl Iterator<Item = (usize, u32, u64)> + 'a {
        let first = self.legs * self.slots as usize;
        let of = move |(at, (supply, slot)): (usize, &(usize, u32))| {
            (*supply, *slot, flow.on[first + at])
        };
        self.held.iter().enumerate().map(of).filter(|held| held.2 > 0)
    }

    /// The vertex where each supply begins.
    pub fn homes(&self, problem: &Problem) -> Vec<u32> {
        let first = problem.legs.len() * self.slots as usize;
        let arcs = self.network.arcs();
        let home = |(index, supply): (usize, &super::Supply)| {
            let held = self.held.iter().position(|held| held.0 == index);
            let own = held.map(|at| arcs[first + at].from);
            // Without holdover arcs, the supply begins at its host.
            own.unwrap_or(supply.host * (self.slots + 1))
        };
        problem.supplies.iter().enumerate().map(home).collect()
    }

    /// The vertex D′ of each destination.
    pub fn ends(&self, problem: &Problem) -> Vec<u32> {
        let arcs = &self.network.arcs()[self.ends..];
        let each = self.slots as usize + 1;
        (0..problem.demands.len()).map(|demand| arcs[demand * each].to).collect()
    }

    /// The units that stay at a destination: (demand, slot, units), units above 0.
    pub fn delivered<'a>(
        &'a self,
        flow: &'a NetworkFlow,
    ) -> impl Iterator<Item = (usize, u32, u64)> + 'a {
        let vertices = self.slots as usize + 1;
        let of = move |at: usize| (at / vertices, (at % vertices) as u32, flow.on[self.ends + at]);
        (0..flow.on.len() - self.ends).map(of).filter(|delivered| delivered.2 > 0)
    }
}

/// A vertex and its supply in units; a negative supply is a demand.
type VertexSupply = (u32, i64);

/// The first vertex of the rows through which a limited host is entered and left.
struct LimitVertices {
    ingress: Vec<Option<u32>>,
    egress: Vec<Option<u32>>,
}

impl Builder<'_> {
    fn at(&self, host: u32, slot: u32) -> u32 {
        host * (self.slots + 1) + slot
    }

    /// A row of T+1 vertices.
    fn row(&mut self) -> u32 {
        let first = self.vertices;
        self.vertices += self.slots + 1;
        first
    }

    fn limit_vertices(&mut self) -> LimitVertices {
        let mut limit_vertices = LimitVertices { ingress: Vec::new(), egress: Vec::new() };
        for host in 0..self.problem.hosts {
            let limits = self.problem.limits[host as usize];
            let ingress = self.entering(host).is_some().then(|| self.row());
            let egress = limits.egress.is_some().then(|| self.row());
            limit_vertices.ingress.push(ingress);
            limit_vertices.egress.push(egress);
        }
        limit_vertices
    }

    /// The most units that may enter a host in a slot.
    fn entering(&self, host: u32) -> Option<u64> {
        let limits = self.problem.limits[host as usize];
        let storage = limits.storage.filter(|_| !self.problem.is_destination(host));
        limits.ingress.into_iter().chain(storage).min()
    }

    fn transfers(&mut self, limit_vertices: &LimitVertices) {
        let all = self.problem.units();
        for slot in 0..self.slots {
            for (index, leg) in self.problem.legs.iter().enumerate() {
                let out = limit_vertices.egress[leg.from as usize];
                let into = limit_vertices.ingress[leg.to as usize];
                let from = out.map_or_else(|| self.at(leg.from, slot), |row| row + slot);
                let to = into.map_or_else(|| self.at(leg.to, slot + 1), |row| row + slot + 1);
                let capacity = leg.per_slot.min(all);
                let cost = self.costs.transfer(index, capacity);
                self.arcs.push(Arc { from, to, capacity, cost });
            }
        }
    }

    /// Adds the holdover arcs. Returns them and the vertices with supplies.
    fn holdovers(&mut self) -> (Vec<(usize, u32)>, Vec<VertexSupply>) {
        let (mut held, mut supplies) = (Vec::new(), Vec::new());
        for (index, supply) in self.problem.supplies.iter().enumerate() {
            // A holdover starts at u(0) if the data is ready then, otherwise at a vertex of its own.
            let own = supply.ready > 0;
            let home = if own { self.vertices } else { self.at(supply.host, 0) };
            self.vertices += u32::from(own);
            supplies.push((home, supply.units as i64));
            for slot in supply.ready.max(1)..self.slots {
                let (to, cost) = (self.at(supply.host, slot), self.costs.held(slot));
                self.arcs.push(Arc { from: home, to, capacity: supply.units, cost });
                held.push((index, slot));
            }
        }
        (held, supplies)
    }

    fn limited(&mut self, limit_vertices: &LimitVertices) {
        for host in 0..self.problem.hosts {
            let limits = self.problem.limits[host as usize];
            let gates = [
                (limit_vertices.ingress[host as usize], self.entering(host), true),
                (limit_vertices.egress[host as usize], limits.egress, false),
            ];
            for (row, capacity, enters) in gates {
                let Some((row, capacity)) = row.zip(capacity) else { continue };
                for slot in 0..=self.slots {
                    let (door, inside) = (row + slot, self.at(host, slot));
                    let (from, to) = if enters { (door, inside) } else { (inside, door) };
                    let capacity = capacity.min(self.problem.units());
                    self.arcs.push(Arc { from, to, capacity, cost: 0 });
                }
            }
        }
    }

    /// Adds the arcs to D′, one vertex for each destination. Returns the demands there.
    fn deliveries(&mut self) -> Vec<VertexSupply> {
        let mut demands = Vec::new();
        for (host, units) in &self.problem.demands {
            let end = self.vertices;
            self.vertices += 1;
            demands.push((end, -(*units as i64)));
            for slot in 0..=self.slots {
                let cost = self.costs.arrived(slot, self.problem.hosts);
                let from = self.at(*host, slot);
                self.arcs.push(Arc { from, to: end, capacity: *units, cost });
            }
        }
        demands
    }
}
