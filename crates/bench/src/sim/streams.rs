//! `thalweg-bench sim streams`: measures the cost of the global scheduler of streams, and how near its plans are to the
//! optimum.

use super::numbers::{self, Number};
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};
use thalweg_plan::streams::{Configuration, Flows, Planned, Problem, Terms};
use thalweg_sim::{
    random,
    streams::{Mesh, Size, small_problem},
};

/// Arguments of `thalweg-bench sim streams`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of nodes, with a leg between all pairs
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    nodes: u32,
    /// Number of streams
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    streams: u32,
    /// Mean number of subscribers per stream
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    subscribers: u32,
    /// Number of reports that change legs, each followed by a new plan
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Instead compare this many small random problems with their exact optimum
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    exact: Option<u64>,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// When the problem is too large or a plan violates a rule.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let numbers = match args.exact {
        Some(cases) => exact(args.seed, cases)?,
        None => large(args)?,
    };
    numbers::print(numbers, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Plans with the random numbers of this seed and round, and measures the time that a report costs the oracle,
/// including building the tables of the problem.
fn planned(
    mesh: &Mesh,
    present: Option<Configuration>,
    (seed, round): (u64, u64),
) -> anyhow::Result<(Problem, Planned, Duration)> {
    let random = &mut random::stream(seed, "plan of streams", round);
    let began = Instant::now();
    let mut problem = mesh.problem()?;
    if let Some(present) = present {
        problem = problem.with_present(present);
    }
    let planned = problem.plan(problem.moves(), random);
    let took = began.elapsed();
    let flows = Flows::checked(&problem, &planned.configuration)?;
    anyhow::ensure!(flows == planned.flows, "the plan's flows differ from its routes");
    Ok((problem, planned, took))
}

fn large(args: &Args) -> anyhow::Result<Vec<Number>> {
    let Args { nodes, streams, subscribers, seed, .. } = *args;
    let mut mesh = Mesh::new(seed, Size { nodes, streams, subscribers });
    let (problem, first, took) = planned(&mesh, None, (seed, 0))?;
    let most: f64 = problem.subscribers().iter().map(|who| who.weight).sum();
    let (mut worst, mut sum, mut moved, mut utility) = (Duration::ZERO, Duration::ZERO, 0, 0.0);
    let mut present = first.configuration;
    for round in 1..=args.rounds {
        mesh.change();
        let (_, again, took) = planned(&mesh, Some(present.clone()), (seed, round))?;
        (worst, sum) = (worst.max(took), sum + took);
        moved += differences(&present, &again.configuration);
        utility += again.flows.utility;
        present = again.configuration;
    }
    let rounds = args.rounds as f64;
    let first_routes = first_routes(&mesh, present)?;
    Ok(vec![
        ("first_plan", "ms", ms(took)),
        ("replan", "ms", ms(sum) / rounds),
        ("replan_worst", "ms", ms(worst)),
        ("subscribers", "subscribers", problem.subscribers().len() as f64),
        ("first_routes", "ms", ms(first_routes)),
        ("moves", "moves", f64::from(problem.moves())),
        ("utility", "of all", first.flows.utility / most),
        ("utility_later", "of all", utility / rounds / most),
        ("changed", "subscribers", moved as f64 / rounds),
    ])
}

/// The number of subscribers that arrive at once in the timed run.
const NEW: usize = 100;

/// Measures how long subscribers that arrive at once wait for their first routes, including the tables of the problem.
fn first_routes(mesh: &Mesh, mut present: Configuration) -> anyhow::Result<Duration> {
    present.choices.iter_mut().rev().take(NEW).for_each(|choice| *choice = None);
    let began = Instant::now();
    let problem = mesh.problem()?.with_present(present);
    let planned = problem.complete(problem.present());
    let took = began.elapsed();
    Flows::checked(&problem, &planned.configuration)?;
    Ok(took)
}

/// The number of subscribers that get another level.
fn differences(before: &Configuration, after: &Configuration) -> usize {
    before.choices.iter().zip(&after.choices).filter(|(before, after)| before != after).count()
}

fn exact(seed: u64, cases: u64) -> anyhow::Result<Vec<Number>> {
    let (mut least, mut sum, mut compared, mut best) = (1.0_f64, 0.0, 0_u32, 0_u32);
    for case in 0..cases {
        let of = seed.wrapping_mul(1_000_003).wrapping_add(case);
        let Some((optimum, _)) = small_problem(of, Terms::none())?.exact() else { continue };
        let problem = small_problem(of, Terms::default())?;
        let random = &mut random::stream(of, "plan of streams", 0);
        let planned = problem.plan(problem.moves(), random);
        Flows::checked(&problem, &planned.configuration)?;
        let share = if optimum > 0.0 { planned.flows.utility / optimum } else { 1.0 };
        (least, sum, compared) = (least.min(share), sum + share, compared + 1);
        best += u32::from(share > 1.0 - 1e-9);
    }
    anyhow::ensure!(
        compared > 0,
        "none of {cases} problems is small enough for an exhaustive search"
    );
    Ok(vec![
        ("utility_least", "of the optimum", least),
        ("utility_mean", "of the optimum", sum / f64::from(compared)),
        ("optimal", "of all", f64::from(best) / f64::from(compared)),
        ("compared", "problems", f64::from(compared)),
    ])
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_problems_are_compared_with_their_optimum() {
        let numbers = exact(5, 20).unwrap();
        let of = |name| numbers.iter().find(|number| number.0 == name).unwrap().2;
        assert!(of("utility_least") > 0.9 && of("utility_mean") <= 1.0, "{numbers:?}");
        assert!(of("compared") >= 10.0);
    }
}
