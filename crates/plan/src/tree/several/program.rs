//! The linear program, with cuts added as they are found violated.

use super::{Overlay, SeveralError, UsableLeg};
use crate::maxflow::MaxFlow;
use good_lp::{
    Expression, ProblemVariables, ResolutionError, Solution, SolverModel, Variable,
    solvers::microlp::microlp, variable,
};
use std::collections::BTreeSet;

/// A cut is violated if it carries this much less than it must, as a share of the largest rate.
const TOLERANCE: f64 = 1e-6;

/// The maximum number of rounds of adding cuts; each adds at least one, and some ten were the most seen.
const MOST_ROUNDS: usize = 500;

/// The objective; rates are shares of [`FlowProgram::scale`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProgramGoal {
    /// The largest rate that all free receivers can have.
    Level,
    /// The most that free receivers get beyond this level, each at most the second value.
    Beyond(f64, f64),
    /// The least sum over all legs.
    Least,
}

/// A solution, in shares of the scale.
pub struct Answer {
    /// By leg.
    pub on: Vec<f64>,
    /// By receiver.
    pub rates: Vec<f64>,
}

/// The rates of receivers and legs as variables, with the cuts found so far as constraints.
pub struct FlowProgram<'a, 'b> {
    overlay: &'a Overlay<'b>,
    legs: &'a [UsableLeg],
    /// The largest rate that matters, bit/s.
    pub scale: f64,
    pub receivers: Vec<usize>,
    /// The rate that each receiver could have alone, as a share of the scale.
    pub alone: Vec<f64>,
    /// The rates of the receivers that can have no more.
    pub fixed: Vec<Option<f64>>,
    /// Cuts: (position of the receiver behind it, legs across).
    cuts: BTreeSet<(usize, Vec<usize>)>,
}

/// A model's variables.
struct Variables {
    on: Vec<Variable>,
    level: Variable,
    /// What each receiver gets beyond θ.
    beyond: Vec<Variable>,
}

impl<'a, 'b> FlowProgram<'a, 'b> {
    pub fn new(overlay: &'a Overlay<'b>, legs: &'a [UsableLeg], alone: &[f64]) -> Self {
        let receivers: Vec<usize> = overlay.receivers().collect();
        let scale = receivers.iter().map(|node| alone[*node]).fold(1.0, f64::max);
        let share = |node: &usize| alone[*node] / scale;
        let mut program = Self {
            overlay,
            legs,
            scale,
            alone: receivers.iter().map(share).collect(),
            fixed: vec![None; receivers.len()],
            receivers,
            cuts: BTreeSet::new(),
        };
        // These cuts are nearly always tight.
        for at in 0..program.receivers.len() {
            let node = program.receivers[at];
            program.cut(at, |side| side != node);
            program.cut(at, |side| side == overlay.source);
        }
        program
    }

    /// The number of nodes of the overlay.
    pub fn nodes(&self) -> usize {
        self.overlay.nodes()
    }

    /// Requires that the legs from one side to the other carry what the receiver gets. Returns whether the cut is new.
    fn cut(&mut self, receiver: usize, near: impl Fn(usize) -> bool) -> bool {
        let across = |at: &usize| near(self.legs[*at].from) && !near(self.legs[*at].to);
        let legs = (0..self.legs.len()).filter(across).collect();
        self.cuts.insert((receiver, legs))
    }

    /// The optimum over all cuts.
    pub fn solve(&mut self, goal: ProgramGoal) -> Result<Answer, SeveralError> {
        for _ in 0..MOST_ROUNDS {
            let answer = self.relaxed(goal)?;
            if !self.add_broken(&answer) {
                return Ok(answer);
            }
        }
        Err(SeveralError::Unsolved(format!("cuts are still violated after {MOST_ROUNDS} rounds")))
    }

    /// Adds a cut for each receiver that does not get what the answer says. Returns whether there was any.
    fn add_broken(&mut self, answer: &Answer) -> bool {
        // Whole numbers, fine enough that rounding is far below the tolerance.
        let fine = (1_u64 << 40) as f64;
        let arc =
            |(leg, on): (&UsableLeg, &f64)| (leg.from as u32, leg.to as u32, (on * fine) as u64);
        let arcs: Vec<(u32, u32, u64)> = self.legs.iter().zip(&answer.on).map(arc).collect();
        let whole = MaxFlow::new(self.overlay.nodes(), &arcs);
        let mut broken = false;
        for at in 0..self.receivers.len() {
            let mut flow = whole.clone();
            let got = flow.run(self.overlay.source as u32, self.receivers[at] as u32) as f64 / fine;
            if got < answer.rates[at] - TOLERANCE {
                broken |= self.cut(at, |node| flow.near_source(node as u32));
            }
        }
        broken
    }

    /// The optimum over the cuts found so far.
    fn relaxed(&self, goal: ProgramGoal) -> Result<Answer, SeveralError> {
        let mut variables = ProblemVariables::new();
        let of = self.variables(&mut variables, goal);
        let sum = |of: &[Variable]| of.iter().copied().sum::<Expression>();
        let mut model = match goal {
            ProgramGoal::Level => variables.maximise(of.level).using(microlp),
            ProgramGoal::Beyond(..) => variables.maximise(sum(&of.beyond)).using(microlp),
            ProgramGoal::Least => variables.minimise(sum(&of.on)).using(microlp),
        };
        for node in 0..self.overlay.nodes() {
            let out = self.carried(&of, |leg| leg.from == node);
            let into = self.carried(&of, |leg| leg.to == node);
            let limits = [(out, self.overlay.egress(node)), (into, self.overlay.ingress(node))];
            for (carried, most) in limits.into_iter().filter(|limit| limit.1.is_finite()) {
                model.add_constraint(carried.leq(most / self.scale));
            }
        }
        for (receiver, legs) in &self.cuts {
            let mut spare: Expression = legs.iter().map(|leg| of.on[*leg]).sum();
            spare -= self.rate(&of, *receiver);
            model.add_constraint(spare.geq(0.0));
        }
        let unsolved = |why: ResolutionError| SeveralError::Unsolved(why.to_string());
        let answer = model.solve().map_err(unsolved)?;
        let on = of.on.iter().map(|x| answer.value(*x).max(0.0)).collect();
        let rates = (0..self.receivers.len()).map(|at| answer.eval(self.rate(&of, at))).collect();
        Ok(Answer { on, rates })
    }

    fn variables(&self, variables: &mut ProblemVariables, goal: ProgramGoal) -> Variables {
        let mut within = |low: f64, high: f64| variables.add(variable().min(low).max(high));
        let on =
            self.legs.iter().map(|leg| within(0.0, (leg.rate / self.scale).min(1.0))).collect();
        let free = (0..self.fixed.len()).filter(|at| self.fixed[*at].is_none());
        let most = free.map(|at| self.alone[at]).fold(1.0, f64::min);
        let (level, beyond) = match goal {
            ProgramGoal::Level => ((0.0, most), 0.0),
            ProgramGoal::Beyond(level, more) => ((level, level), more),
            ProgramGoal::Least => ((0.0, 0.0), 0.0),
        };
        let level = within(level.0, level.1);
        let beyond = self.alone.iter().map(|_| within(0.0, beyond)).collect();
        Variables { on, level, beyond }
    }

    fn rate(&self, of: &Variables, receiver: usize) -> Expression {
        match self.fixed[receiver] {
            Some(rate) => Expression::from(rate),
            None => of.level + of.beyond[receiver],
        }
    }

    fn carried(&self, of: &Variables, which: impl Fn(&UsableLeg) -> bool) -> Expression {
        let legs = self.legs.iter().zip(&of.on).filter(|(leg, _)| which(leg));
        legs.map(|(_, on)| *on).sum()
    }
}
