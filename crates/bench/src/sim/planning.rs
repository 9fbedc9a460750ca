//! `thalweg-bench sim planning`: measures the time and memory for planning a collection.

use super::numbers::{self, Number};
use clap::ValueEnum;
use std::{
    process::ExitCode,
    time::{Duration, Instant},
};
use thalweg_plan::collection::{Objective, Problem};
use thalweg_sim::planning::collection;

/// Arguments of `thalweg-bench sim planning`.
#[derive(clap::Args)]
pub struct Args {
    /// Number of hosts, with a leg between all pairs; the last one is the destination
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=2000))]
    hosts: u32,
    /// Approximate number of slots of the plan
    #[arg(long, default_value_t = 150, value_name = "T", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    slots: u32,
    /// The kind of plan
    #[arg(long, value_enum, default_value_t = PlanKind::Timetable)]
    plan: PlanKind,
    /// Seed of the random rates and amounts
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlanKind {
    /// The paper's plan: search for the smallest T, cheapest flow, decomposition
    Timetable,
    /// Constant rates
    Fluid,
}

/// Runs the command.
///
/// # Errors
/// When there is no plan of this size.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let problem = collection(args.seed, args.hosts, args.slots)?;
    let numbers = match args.plan {
        PlanKind::Timetable => timetable(&problem)?,
        PlanKind::Fluid => fluid(&problem)?,
    };
    numbers::print(numbers, args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn timetable(problem: &Problem) -> anyhow::Result<Vec<Number>> {
    let began = Instant::now();
    let slots = problem.smallest_horizon()?;
    let search = began.elapsed();
    let plan = problem.timetable_within(slots, Objective::Paper)?;
    let whole = began.elapsed();
    Ok(vec![
        ("search", "ms", ms(search)),
        ("flow_and_paths", "ms", ms(whole - search)),
        ("whole", "ms", ms(whole)),
        ("slots", "slots", f64::from(slots)),
        ("paths", "paths", plan.paths.len() as f64),
    ])
}

fn fluid(problem: &Problem) -> anyhow::Result<Vec<Number>> {
    let began = Instant::now();
    let plan = problem.fluid()?;
    let whole = began.elapsed();
    Ok(vec![
        ("whole", "ms", ms(whole)),
        ("slots", "slots", plan.slots),
        ("paths", "paths", plan.paths.len() as f64),
    ])
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_about_the_requested_number_of_slots() {
        let problem = collection(1, 5, 12).unwrap();
        for numbers in [timetable(&problem).unwrap(), fluid(&problem).unwrap()] {
            let slots = numbers.iter().find(|number| number.0 == "slots").unwrap().2;
            assert!((8.0..=14.0).contains(&slots), "{slots}");
        }
    }
}
