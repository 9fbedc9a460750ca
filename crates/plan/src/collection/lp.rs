//! The fluid plan as a linear program, for problems that maximum flows cannot express (decision 0074).
//!
//! These are capacities on sets of legs (§III: "one could use Linear Programming"), data with its own destination, and
//! a price as a bound or as the objective.
//!
//! ```text
//! rates x(k, leg) ≥ 0 of commodity k, and θ = 1/T
//! out(k, host) − in(k, host) = θ · (supply − demand of k at the host)
//! Σk x(k, leg) ≤ capacity of the leg, of a set of legs, of a host in and out
//! maximize θ (where Σ price · x ≤ budget · θ), or at a given θ minimize Σ price · x
//! ```

use super::{Fluid, PlanError, Problem, rated_path::FlowSplitter};
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable,
    solvers::microlp::{MicroLpProblem, microlp},
    variable,
};

/// Data of one kind: any of it serves any of the demands.
#[derive(Clone)]
pub struct Commodity {
    /// Supplies: (host, units).
    pub from: Vec<(u32, u64)>,
    /// Demands: (host, units); their sum equals that of the supplies.
    pub to: Vec<(u32, u64)>,
}

/// What is optimized.
#[derive(Clone, Copy)]
pub enum Goal<'a> {
    /// The least T.
    Fastest,
    /// The least T whose price is at most the budget.
    Within(&'a [f64], f64),
    /// The least price of a plan that ends after this many slots.
    Cheapest(&'a [f64], f64),
}

/// The solution.
pub struct Rates {
    /// T in slots.
    pub slots: f64,
    /// Rates in data units a slot, by commodity and leg.
    on: Vec<Vec<f64>>,
    commodities: Vec<Commodity>,
}

impl Commodity {
    /// All data of a problem as one commodity.
    pub fn of(problem: &Problem) -> Self {
        let from = problem.supplies.iter().map(|supply| (supply.host, supply.units)).collect();
        Self { from, to: problem.demands.clone() }
    }

    fn units(&self) -> u64 {
        self.from.iter().map(|from| from.1).sum()
    }

    /// Supply less demand, by host.
    fn balance(&self, hosts: u32) -> Vec<f64> {
        let mut balance = vec![0.0; hosts as usize];
        self.from.iter().for_each(|(host, units)| balance[*host as usize] += *units as f64);
        self.to.iter().for_each(|(host, units)| balance[*host as usize] -= *units as f64);
        balance
    }
}

/// Solves the program for these commodities and this goal.
///
/// # Errors
///
/// [`PlanError::Shut`] if T is unbounded, [`PlanError::Unsolved`] if the solver finds no solution; at a given T or
/// budget, that is because there is none.
pub fn solve(problem: &Problem, of: &[Commodity], goal: Goal) -> Result<Rates, PlanError> {
    let commodities = of.to_vec();
    let units: u64 = of.iter().map(Commodity::units).sum();
    let still = of.iter().all(|one| one.balance(problem.hosts).iter().all(|units| *units == 0.0));
    if still {
        let on = vec![vec![0.0; problem.legs.len()]; of.len()];
        return Ok(Rates { slots: 0.0, on, commodities });
    }
    let scale = Scale::of(problem, units);
    let mut program = Program::new(problem, of.len(), scale, goal);
    program.constrain(problem, of, goal);
    let (theta, on) = program.solve()?;
    let slots = match goal {
        Goal::Cheapest(_, slots) => slots,
        // The solver cannot distinguish smaller values from zero.
        _ if theta < 1e-9 => return Err(PlanError::Shut),
        _ => scale.units / scale.rate / theta,
    };
    let on = on.into_iter().map(|on| on.into_iter().map(|x| x * scale.rate).collect()).collect();
    Ok(Rates { slots, on, commodities })
}

/// Rates and amounts are divided by these, so that the program's numbers are about 1.
#[derive(Clone, Copy)]
struct Scale {
    rate: f64,
    units: f64,
}

impl Scale {
    fn of(problem: &Problem, units: u64) -> Self {
        let widest = problem.legs.iter().map(|leg| leg.per_slot).max().unwrap_or(1);
        Self { rate: widest.max(1) as f64, units: units.max(1) as f64 }
    }

    fn rate(self, per_slot: u64) -> f64 {
        per_slot as f64 / self.rate
    }
}

struct Program {
    scale: Scale,
    model: MicroLpProblem,
    /// 1/T.
    theta: Variable,
    /// By commodity and leg.
    on: Vec<Vec<Variable>>,
}

impl Program {
    fn new(problem: &Problem, commodities: usize, scale: Scale, goal: Goal) -> Self {
        let mut variables = ProblemVariables::new();
        let theta = match goal {
            Goal::Cheapest(_, slots) => {
                let theta = scale.units / scale.rate / slots;
                variables.add(variable().min(theta).max(theta))
            }
            _ => variables.add(variable().min(0.0)),
        };
        let mut rates = || -> Vec<Variable> {
            let most = problem.legs.iter().map(|leg| scale.rate(leg.per_slot));
            most.map(|most| variables.add(variable().min(0.0).max(most))).collect()
        };
        let on: Vec<Vec<Variable>> = (0..commodities).map(|_| rates()).collect();
        let model = match goal {
            Goal::Cheapest(prices, _) => {
                variables.minimise(price(&on, &relative(prices))).using(microlp)
            }
            _ => variables.maximise(theta).using(microlp),
        };
        Self { scale, model, theta, on }
    }

    fn constrain(&mut self, problem: &Problem, of: &[Commodity], goal: Goal) {
        for (index, one) in of.iter().enumerate() {
            self.conserve(problem, index, &one.balance(problem.hosts));
        }
        if of.len() > 1 {
            let each = problem.legs.iter().enumerate();
            each.for_each(|(leg, capacity)| self.bound(&[leg], capacity.per_slot));
        }
        problem.shared.iter().for_each(|set| self.bound(&set.legs, set.per_slot));
        for (host, limits) in (0_u32..).zip(&problem.limits) {
            let legs = |at: fn(&super::Leg) -> u32| -> Vec<usize> {
                (0..problem.legs.len()).filter(|leg| at(&problem.legs[*leg]) == host).collect()
            };
            if let Some(most) = limits.ingress {
                self.bound(&legs(|leg| leg.to), most);
            }
            if let Some(most) = limits.egress {
                self.bound(&legs(|leg| leg.from), most);
            }
        }
        if let Goal::Within(prices, budget) = goal {
            let most = highest(prices);
            let mut spent = price(&self.on, &relative(prices));
            spent.add_mul(-budget / self.scale.units / most, self.theta);
            self.model.add_constraint(spent.leq(0.0));
        }
    }

    /// Outflow minus inflow of a host equals what it has (or, if negative, demands) over T.
    fn conserve(&mut self, problem: &Problem, of: usize, balance: &[f64]) {
        let mut hosts: Vec<Expression> =
            balance.iter().map(|units| self.theta * (-units / self.scale.units)).collect();
        for (leg, on) in problem.legs.iter().zip(&self.on[of]) {
            hosts[leg.from as usize].add_mul(1.0, *on);
            hosts[leg.to as usize].add_mul(-1.0, *on);
        }
        // One equation follows from the others; keeping it only makes the program degenerate.
        hosts.pop();
        for host in hosts {
            self.model.add_constraint(host.eq(0.0));
        }
    }

    fn bound(&mut self, legs: &[usize], per_slot: u64) {
        let mut sum = Expression::from(0.0);
        self.on.iter().flat_map(|on| legs.iter().map(|leg| on[*leg])).for_each(|x| {
            sum.add_mul(1.0, x);
        });
        self.model.add_constraint(sum.leq(self.scale.rate(per_slot)));
    }

    fn solve(self) -> Result<(f64, Vec<Vec<f64>>), PlanError> {
        let unsolved = |why: ResolutionError| PlanError::Unsolved(why.to_string());
        let answer = self.model.solve().map_err(unsolved)?;
        let values = |on: &Vec<Variable>| on.iter().map(|x| answer.value(*x).max(0.0)).collect();
        Ok((answer.value(self.theta), self.on.iter().map(values).collect()))
    }
}

fn highest(prices: &[f64]) -> f64 {
    let most = prices.iter().copied().fold(0.0, f64::max);
    if most > 0.0 { most } else { 1.0 }
}

/// Prices as shares of the highest.
fn relative(prices: &[f64]) -> Vec<f64> {
    let most = highest(prices);
    prices.iter().map(|price| price / most).collect()
}

fn price(on: &[Vec<Variable>], prices: &[f64]) -> Expression {
    let mut sum = Expression::from(0.0);
    for (x, price) in on.iter().flat_map(|on| on.iter().zip(prices)) {
        sum.add_mul(*price, *x);
    }
    sum
}

/// Paths are split off in whole numbers; this one stands for the largest rate.
const FINE: f64 = (1_u64 << 40) as f64;

impl Rates {
    /// Splits the rates into paths. What rounding takes from a source's paths is shared out among them.
    pub fn fluid(&self, problem: &Problem) -> Fluid {
        let mut paths = Vec::new();
        for (on, Commodity { from, to }) in self.on.iter().zip(&self.commodities) {
            let most = on.iter().copied().fold(0.0, f64::max);
            let scale = FINE / if most > 0.0 { most } else { 1.0 };
            let rate = |units: u64| (units as f64 / self.slots * scale).round() as u64;
            let mut left = FlowSplitter::new(problem.hosts);
            for (leg, on) in problem.legs.iter().zip(on) {
                left.sends(leg.from, leg.to, (on * scale).round() as u64);
            }
            to.iter().for_each(|(host, units)| left.stays(*host, rate(*units)));
            let own = from.iter().map(|(host, units)| (*host, rate(*units)));
            let mut found = left.paths(own, scale);
            // Drop paths that are only the solver's tolerance.
            found.retain(|path| path.per_slot * scale > FINE * 1e-7 && !path.via.is_empty());
            for (host, units) in from {
                let own = |path: &&super::RatedPath| path.source == *host;
                let sum: f64 = found.iter().filter(own).map(|path| path.per_slot).sum();
                let whole = *units as f64 / self.slots;
                let mine = found.iter_mut().filter(|path| path.source == *host);
                mine.for_each(|path| path.per_slot *= whole / sum);
            }
            paths.extend(found);
        }
        Fluid { slots: self.slots, paths }
    }
}
