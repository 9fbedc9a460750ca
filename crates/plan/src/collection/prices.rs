//! What a plan costs: the cheapest plan within a deadline, the fastest within a budget, and the time–price curve.
//!
//! Ours; the paper says "Modifications to this cost function can be made if other properties are desired". Over
//! constant rates, the least price P(T) falls with T, is convex and piecewise linear. The potentials of each cheapest
//! flow give the slope at its T: Newton's method finds the T of a budget, and tangents find all corners of the curve.

use super::{
    Fluid, Objective, PlanError, Problem, Timetable, horizon, lp, rated_path::FlowSplitter,
};
use crate::mincost::{Arc, Network, NetworkFlow};
use thiserror::Error;

/// The price of a data unit on each leg, 0 or more, in any currency.
#[derive(Clone, Debug, PartialEq)]
pub struct Prices {
    /// In the problem's order of legs.
    on: Vec<f64>,
}

/// A plan and its price.
#[derive(Clone, Debug, PartialEq)]
pub struct PricedPlan<P> {
    pub plan: P,
    /// The sum over all legs of units times price.
    pub price: f64,
}

/// A point of the time–price curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// The makespan, in slots.
    pub slots: f64,
    /// The least price of plans that end by then.
    pub price: f64,
}

/// Why there is no plan at this price.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PriceError {
    /// There is no plan at all.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// No plan is this cheap, however long it takes.
    #[error("the budget is too small: the cheapest plan costs {least}")]
    OverBudget {
        /// The cheapest plan's price.
        least: f64,
    },
    /// No plan is this fast, whatever it costs.
    #[error("the deadline is too early: the fastest plan takes {slots} slots")]
    TooSoon {
        /// The fastest plan's slots.
        slots: f64,
    },
}

impl Prices {
    /// Creates prices from the price of a unit on each leg by its ends (from, to). Negative and non-finite prices count
    /// as 0.
    pub fn of(problem: &Problem, price: impl Fn(u32, u32) -> f64) -> Self {
        let price = |leg: &super::Leg| price(leg.from, leg.to);
        let sane = |price: f64| if price.is_finite() { price.max(0.0) } else { 0.0 };
        Self { on: problem.legs.iter().map(price).map(sane).collect() }
    }

    fn highest(&self) -> f64 {
        self.on.iter().copied().fold(0.0, f64::max)
    }

    fn of_leg(&self, problem: &Problem, from: u32, to: u32) -> f64 {
        let same = |leg: &super::Leg| (leg.from, leg.to) == (from, to);
        problem.legs.iter().position(same).map_or(0.0, |leg| self.on[leg])
    }

    /// The price of a fluid plan.
    pub fn fluid(&self, problem: &Problem, plan: &Fluid) -> f64 {
        let path = |path: &super::RatedPath| {
            let from = std::iter::once(&path.source).chain(&path.via);
            let legs = from.zip(&path.via).map(|(from, to)| self.of_leg(problem, *from, *to));
            legs.sum::<f64>() * path.per_slot * plan.slots
        };
        plan.paths.iter().map(path).sum()
    }

    /// The price of a timetable.
    pub fn timetable(&self, problem: &Problem, plan: &Timetable) -> f64 {
        let path = |path: &super::TimedPath| {
            let legs = path.transfers().map(|(_, from, to)| self.of_leg(problem, from, to));
            legs.sum::<f64>() * path.units as f64
        };
        plan.paths.iter().map(path).sum()
    }
}

/// See [`Problem::fluid_within`].
pub(super) fn fluid_within(
    problem: &Problem,
    slots: f64,
    prices: &Prices,
) -> Result<PricedPlan<Fluid>, PriceError> {
    let fastest = problem.fluid()?.slots;
    if slots < fastest * (1.0 - EQUAL) {
        return Err(PriceError::TooSoon { slots: fastest });
    }
    priced(problem, slots.max(fastest), prices)
}

/// See [`Problem::fluid_for`].
pub(super) fn fluid_for(
    problem: &Problem,
    budget: f64,
    prices: &Prices,
) -> Result<PricedPlan<Fluid>, PriceError> {
    let slots = problem.fluid()?.slots;
    let least = least_price(problem, prices)?;
    if budget < least - least.abs() * EQUAL {
        return Err(PriceError::OverBudget { least });
    }
    if slots <= 0.0 {
        return Ok(PricedPlan { plan: Fluid { slots, paths: Vec::new() }, price: 0.0 });
    }
    if !problem.shared.is_empty() {
        let goal = lp::Goal::Within(&prices.on, budget.max(least * (1.0 + EQUAL)));
        let plan = lp::solve(problem, &[lp::Commodity::of(problem)], goal)?.fluid(problem);
        return Ok(PricedPlan { price: prices.fluid(problem, &plan), plan });
    }
    let slots = PriceCurve::new(problem, prices).slots_for(slots, budget)?;
    priced(problem, slots, prices)
}

/// See [`Problem::fluid_curve`].
pub(super) fn fluid_curve(
    problem: &Problem,
    prices: &Prices,
) -> Result<Vec<CurvePoint>, PriceError> {
    let fastest = problem.fluid()?.slots;
    if fastest <= 0.0 {
        return Ok(vec![CurvePoint { slots: 0.0, price: 0.0 }]);
    }
    if !problem.shared.is_empty() {
        return sampled_curve(problem, fastest, prices);
    }
    let curve = PriceCurve::new(problem, prices);
    let last = curve.slots_for(fastest, least_price(problem, prices)?)?;
    curve.corners(fastest, last)
}

fn sampled_curve(
    problem: &Problem,
    fastest: f64,
    prices: &Prices,
) -> Result<Vec<CurvePoint>, PriceError> {
    let least = least_price(problem, prices)?;
    let last = fluid_for(problem, least, prices)?.plan.slots.max(fastest);
    let at = |step: u32| fastest + (last - fastest) * f64::from(step) / 16.0;
    let offer = |slots| Ok(CurvePoint { slots, price: priced(problem, slots, prices)?.price });
    let mut offers: Vec<CurvePoint> =
        (0..=16).map(at).map(offer).collect::<Result<_, PriceError>>()?;
    offers.dedup_by(|next, one| next.slots <= one.slots * (1.0 + EQUAL));
    Ok(offers)
}

/// See [`Problem::least_price`].
pub(super) fn least_price(problem: &Problem, prices: &Prices) -> Result<f64, PriceError> {
    problem.check_ways()?;
    // With unlimited time, every leg, set of legs and host can carry everything.
    let flow = PriceCurve::new(problem, prices).cheapest(f64::INFINITY)?;
    Ok(flow.price)
}

/// The cheapest plan that takes `slots`, which must be enough.
fn priced(problem: &Problem, slots: f64, prices: &Prices) -> Result<PricedPlan<Fluid>, PriceError> {
    if slots <= 0.0 {
        return Ok(PricedPlan { plan: Fluid { slots: 0.0, paths: Vec::new() }, price: 0.0 });
    }
    let plan = if problem.shared.is_empty() {
        PriceCurve::new(problem, prices).cheapest(slots)?.plan(problem, slots)
    } else {
        let goal = lp::Goal::Cheapest(&prices.on, slots * (1.0 + EQUAL));
        let mut plan = lp::solve(problem, &[lp::Commodity::of(problem)], goal)?.fluid(problem);
        plan.slots = slots;
        plan
    };
    Ok(PricedPlan { price: prices.fluid(problem, &plan), plan })
}

/// See [`Problem::timetable_cheapest`].
pub(super) fn timetable_cheapest(
    problem: &Problem,
    slots: u32,
    prices: &Prices,
) -> Result<PricedPlan<Timetable>, PriceError> {
    let plan = problem.timetable_within(slots, Objective::Price(&whole(prices)))?;
    Ok(PricedPlan { price: prices.timetable(problem, &plan), plan })
}

/// See [`Problem::timetable_for`].
pub(super) fn timetable_for(
    problem: &Problem,
    budget: f64,
    prices: &Prices,
) -> Result<PricedPlan<Timetable>, PriceError> {
    let least = least_price(problem, prices)?;
    let most = budget + budget.abs().max(least.abs()) * EQUAL;
    if most < least {
        return Err(PriceError::OverBudget { least });
    }
    let first = problem.smallest_horizon()?;
    let (mut low, mut high) = (first.saturating_sub(1), first);
    let mut plan = timetable_cheapest(problem, high, prices)?;
    while plan.price > most {
        low = high;
        high = horizon::doubled(high)?;
        plan = timetable_cheapest(problem, high, prices)?;
    }
    while low + 1 < high {
        let middle = low.midpoint(high);
        let other = timetable_cheapest(problem, middle, prices)?;
        if other.price <= most {
            (high, plan) = (middle, other);
        } else {
            low = middle;
        }
    }
    Ok(plan)
}

/// Relative differences below this are rounding errors.
const EQUAL: f64 = 1e-9;

/// A curve that stays this close to its chord, relative to the price, is straight.
const STRAIGHT: f64 = 1e-7;

/// Prices as whole numbers; the dearest leg's is 2²⁴.
fn whole(prices: &Prices) -> Vec<u32> {
    let scale = f64::from(1 << 24) / prices.highest().max(f64::MIN_POSITIVE);
    prices.on.iter().map(|price| (price * scale).round() as u32).collect()
}

/// The curve P(T) of a problem without shared capacities.
struct PriceCurve<'a> {
    problem: &'a Problem,
    prices: &'a Prices,
    /// Flow units in a data unit. The flow is in whole numbers.
    fine: f64,
    /// Cost units in a unit of price. The network's costs are whole numbers.
    dear: f64,
}

/// A point of the curve, with its flow.
struct Point {
    price: f64,
    /// dP/dT, at most 0: one more slot would save this much.
    slope: f64,
    flow: NetworkFlow,
    fine: f64,
}

impl<'a> PriceCurve<'a> {
    fn new(problem: &'a Problem, prices: &'a Prices) -> Self {
        let fine = ((1_u64 << 50) as f64 / problem.units().max(1) as f64).floor().max(1.0);
        let most = prices.highest();
        let dear = if most > 0.0 { f64::from(1 << 30) / most } else { 1.0 };
        Self { problem, prices, fine, dear }
    }

    /// The flow units that a leg or limit of `per_slot` lets through in `slots`, at most all data.
    fn room(&self, per_slot: Option<u64>, slots: f64) -> u64 {
        let all = self.problem.units() as f64 * self.fine;
        // Rounded up, so that flow that just fits is not refused.
        let room = per_slot.map_or(all, |most| (most as f64 * slots * self.fine).ceil());
        // 0 · ∞ belongs to a host that is shut for good.
        if room.is_nan() { 0 } else { (room * (1.0 + EQUAL)).min(all) as u64 }
    }

    /// The network of the legs, then the hosts' limits in and out. Nodes as in the fluid plan: inside, before, behind.
    fn network(&self, slots: f64) -> Result<Network, PriceError> {
        let hosts = self.problem.hosts;
        let mut arcs = Vec::with_capacity(self.problem.legs.len() + 2 * hosts as usize);
        let shut =
            |leg| self.problem.shared.iter().any(|s| s.per_slot == 0 && s.legs.contains(&leg));
        for (at, (leg, price)) in self.problem.legs.iter().zip(&self.prices.on).enumerate() {
            // Among equal prices, prefer fewer legs.
            let cost = (price * self.dear).round() as i64 + 1;
            let capacity = if shut(at) { 0 } else { self.room(Some(leg.per_slot), slots) };
            arcs.push(Arc { from: 2 * hosts + leg.from, to: hosts + leg.to, capacity, cost });
        }
        for (host, limits) in (0..hosts).zip(&self.problem.limits) {
            let room = |most| self.room(most, slots);
            let (into, out) = (room(limits.ingress), room(limits.egress));
            arcs.push(Arc { from: hosts + host, to: host, capacity: into, cost: 0 });
            arcs.push(Arc { from: host, to: 2 * hosts + host, capacity: out, cost: 0 });
        }
        let mut supply = vec![0; 3 * hosts as usize];
        let units = |units: u64| (units as f64 * self.fine) as i64;
        let (from, to) = (&self.problem.supplies, &self.problem.demands);
        from.iter().for_each(|from| supply[from.host as usize] += units(from.units));
        to.iter().for_each(|(host, demand)| supply[*host as usize] -= units(*demand));
        Ok(Network::new(supply, arcs).map_err(PlanError::from)?)
    }

    fn cheapest(&self, slots: f64) -> Result<Point, PriceError> {
        let network = self.network(slots)?;
        let flow = network.cheapest().map_err(|why| PlanError::TooShort {
            slots: slots as u32,
            stranded: (why.stranded as f64 / self.fine).ceil() as u64,
        })?;
        let legs = self.prices.on.iter().zip(&flow.on);
        let price = legs.map(|(price, on)| price * *on as f64).sum::<f64>() / self.fine;
        let slope = self.slope(&network, &flow);
        Ok(Point { price, slope, flow, fine: self.fine })
    }

    /// dP/dT: what the full legs and limits would save if they carried one more slot's worth.
    fn slope(&self, network: &Network, flow: &NetworkFlow) -> f64 {
        let limits = self.problem.limits.iter().flat_map(|at| [at.ingress, at.egress]);
        let capacities = self.problem.legs.iter().map(|leg| Some(leg.per_slot)).chain(limits);
        let saves = |(arc, per_slot): (&Arc, Option<u64>)| {
            let price = |node: u32| flow.potential[node as usize];
            let reduced = arc.cost + price(arc.from) - price(arc.to);
            per_slot.map_or(0.0, |per_slot| reduced.min(0) as f64 * per_slot as f64)
        };
        network.arcs().iter().zip(capacities).map(saves).sum::<f64>() / self.dear
    }

    /// The least T, from `fastest` on, at which the price is within a budget. The budget must be enough.
    fn slots_for(&self, fastest: f64, budget: f64) -> Result<f64, PriceError> {
        let most = budget + budget.abs() * EQUAL;
        let mut slots = fastest;
        // P is convex, so the tangent reaches the budget before P does. P has finitely many corners; the bound on the
        // steps is against rounding, which could go on for ever.
        for _ in 0..MOST_STEPS {
            let point = self.cheapest(slots)?;
            let next = slots - (point.price - budget) / point.slope.min(-f64::MIN_POSITIVE);
            if point.price <= most || !next.is_finite() || next <= slots * (1.0 + EQUAL) {
                break;
            }
            slots = next;
        }
        Ok(slots)
    }

    /// All corners between two ends. Where the tangents of two points meet, there is a corner, or another straight part
    /// below it.
    fn corners(&self, first: f64, last: f64) -> Result<Vec<CurvePoint>, PriceError> {
        let ends = [first, last.max(first)];
        let mut found: Vec<(f64, Point)> = Vec::new();
        for slots in ends {
            found.push((slots, self.cheapest(slots)?));
        }
        let mut at = 0;
        while at + 1 < found.len() && found.len() < MOST_CORNERS {
            match self.between(&found[at], &found[at + 1])? {
                Some(point) => found.insert(at + 1, point),
                None => at += 1,
            }
        }
        let offers = found.iter().map(|(slots, at)| CurvePoint { slots: *slots, price: at.price });
        Ok(bent_only(offers))
    }

    /// The point of the curve below the point where two tangents meet; `None` if the curve is straight between the two
    /// or bends only at one of them.
    fn between(
        &self,
        (left, a): &(f64, Point),
        (right, b): &(f64, Point),
    ) -> Result<Option<(f64, Point)>, PriceError> {
        let bent = b.slope - a.slope;
        let meet = (a.price - b.price + b.slope * right - a.slope * left) / bent;
        let inside = meet > left + (right - left) * 1e-6 && meet < right - (right - left) * 1e-6;
        // The slopes of two points on one straight part differ by the rounding of the costs, and would meet anywhere.
        let tangent = a.price + a.slope * (meet - left);
        let chord = a.price + (b.price - a.price) * (meet - left) / (right - left);
        let deep = chord - tangent > STRAIGHT * a.price.abs().max(b.price.abs());
        if bent.is_nan() || bent <= 0.0 || !inside || !deep {
            return Ok(None);
        }
        Ok(Some((meet, self.cheapest(meet)?)))
    }
}

/// Drops the points of a convex curve that lie on a straight line between their neighbours.
fn bent_only(offers: impl Iterator<Item = CurvePoint>) -> Vec<CurvePoint> {
    let mut kept: Vec<CurvePoint> = Vec::new();
    for next in offers {
        while let [.., a, b] = kept[..] {
            let chord =
                a.price + (next.price - a.price) * (b.slots - a.slots) / (next.slots - a.slots);
            if chord - b.price > STRAIGHT * a.price.abs() {
                break;
            }
            kept.pop();
        }
        if kept.last().is_none_or(|last| next.slots > last.slots * (1.0 + EQUAL)) {
            kept.push(next);
        }
    }
    kept
}

/// The maximum number of Newton steps; each passes a corner.
const MOST_STEPS: u32 = 200;
/// The maximum number of corners; further ones are left out, as if the curve were straight there.
const MOST_CORNERS: usize = 64;

impl Point {
    fn plan(&self, problem: &Problem, slots: f64) -> Fluid {
        let mut left = FlowSplitter::new(problem.hosts);
        for (leg, on) in problem.legs.iter().zip(&self.flow.on) {
            left.sends(leg.from, leg.to, *on);
        }
        let units = |units: u64| (units as f64 * self.fine) as u64;
        problem.demands.iter().for_each(|(host, demand)| left.stays(*host, units(*demand)));
        let own = problem.supplies.iter().map(|supply| (supply.host, units(supply.units)));
        Fluid { slots, paths: left.paths(own, self.fine * slots) }
    }
}

/// A flow of all data, without cycles.
pub(super) struct WholeFlow {
    /// (from, to): the legs first, then the hosts' limits in and out.
    pub arcs: Vec<(u32, u32)>,
    /// Flow units on each arc.
    pub on: Vec<u64>,
    /// Flow units in a data unit.
    pub fine: u64,
}

/// A flow of all data over the overlay graph within `slots`.
pub(super) fn whole_flow(problem: &Problem, slots: f64) -> Result<WholeFlow, PlanError> {
    let free = Prices::of(problem, |_, _| 0.0);
    let curve = PriceCurve::new(problem, &free);
    let network = curve.network(slots).map_err(|_| PlanError::TooFine)?;
    // Each leg costs something, so a flow with a cycle is never cheapest.
    let flow = network.cheapest().map_err(|_| PlanError::TooFine)?;
    let arcs = network.arcs().iter().map(|arc| (arc.from, arc.to)).collect();
    Ok(WholeFlow { arcs, on: flow.on, fine: curve.fine as u64 })
}
