//! Max-min fair rates by levels: the largest rate for all receivers, then the largest for those that can have more, and
//! so on.

use super::{
    SeveralError,
    program::{FlowProgram, ProgramGoal},
};

/// A receiver that cannot get this much more together with the others, as a share of the level, gets no more. Receivers
/// that could get more alone lose at most this times the number of receivers.
const MORE: f64 = 1e-3;

/// Max-min fair rates, bit/s.
pub struct FairRates {
    /// By node.
    pub rates: Vec<f64>,
    /// By leg.
    pub on: Vec<f64>,
}

/// Solves the program for each level. Unreachable receivers get rate 0.
pub fn rates(mut program: FlowProgram<'_, '_>) -> Result<FairRates, SeveralError> {
    // Unreachable receivers have nothing.
    for (fixed, alone) in program.fixed.iter_mut().zip(&program.alone) {
        *fixed = Some(0.0).filter(|_| *alone <= 0.0);
    }
    while program.fixed.iter().any(Option::is_none) {
        let answer = program.solve(ProgramGoal::Level)?;
        let free = (0..program.fixed.len()).find(|at| program.fixed[*at].is_none());
        let level = free.map_or(0.0, |at| answer.rates[at]).max(0.0);
        fix(&mut program, level)?;
    }
    let least = program.solve(ProgramGoal::Least)?;
    let mut rates = vec![0.0; program.nodes()];
    for (node, rate) in program.receivers.iter().zip(&least.rates) {
        rates[*node] = rate * program.scale;
    }
    Ok(FairRates { rates, on: least.on.iter().map(|on| on * program.scale).collect() })
}

/// Fixes the receivers that can get no more than this level; at least one.
fn fix(program: &mut FlowProgram<'_, '_>, level: f64) -> Result<(), SeveralError> {
    let more = (MORE * level).max(1e-4);
    // Slightly below, so that the rounding of the level does not make it infeasible.
    let level = level * (1.0 - 1e-7);
    let beyond = program.solve(ProgramGoal::Beyond(level, more))?;
    let gets = |at: usize| beyond.rates[at] - level;
    let free = (0..program.fixed.len()).filter(|at| program.fixed[*at].is_none());
    let free: Vec<usize> = free.collect();
    let full = |at: usize| level >= program.alone[at] * (1.0 - 1e-6) || gets(at) < more / 2.0;
    let mut ends: Vec<usize> = free.iter().copied().filter(|at| full(*at)).collect();
    if ends.is_empty() {
        // Rounding hid which receivers are full: take the one with the least.
        ends.extend(free.into_iter().min_by(|a, b| gets(*a).total_cmp(&gets(*b))));
    }
    ends.into_iter().for_each(|at| program.fixed[at] = Some(level));
    Ok(())
}
