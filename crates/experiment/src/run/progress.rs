//! Progress messages of a run on standard error.

use crate::{
    error::Result,
    plan::{Arm, Plan},
    record::{
        ArmRecord,
        Outcome::{Done, Failed, Skipped, Unfinished},
    },
    schedule::{self, Options, Round},
    table,
};
use std::time::{Duration, Instant};
use thalweg_console::note;

/// Announces the rounds of a run and the estimated time.
///
/// # Errors
/// If the `expect` of an arm is not a duration.
pub fn announce(plan: &Plan, options: &Options, arms: &[&Arm], rounds: &[Round]) -> Result<()> {
    let estimate = schedule::estimate(plan, options, rounds)?;
    let (arms, seconds) = (arms.len(), estimate.as_secs());
    let rounds = rounds.len();
    note!("{}: {}", plan.name, plan.claim);
    note!("{rounds} round(s) of {arms} arm(s), about {} min {} s", seconds / 60, seconds % 60);
    Ok(())
}

/// The most metrics in a progress message, so that it stays on one line.
const METRICS_MAX: usize = 3;

/// Prints the progress message of an arm's run.
pub fn report_arm(plan: &Plan, round: &Round, of: usize, record: &ArmRecord) {
    let what = match &record.outcome {
        Done => {
            let shown =
                plan.headline.list().iter().filter_map(|m| Some((m, record.metrics.get(m)?)));
            let shown = shown.take(METRICS_MAX).map(|(m, s)| {
                let unit = if s.unit == "1" { "" } else { &s.unit };
                format!("{m} {} {unit}", table::figure(s.value)).trim_end().to_owned()
            });
            let shown: Vec<String> = shown.collect();
            if shown.is_empty() { "done".to_owned() } else { shown.join(", ") }
        }
        Failed(why) => format!("FAILED: {why}"),
        Unfinished(why) => format!("unfinished: {why}"),
        Skipped(why) => format!("skipped: {why}"),
    };
    let cell =
        if round.cell.label.is_empty() { String::new() } else { format!("{}, ", round.cell.label) };
    note!("[{}/{of}] {cell}seed {}: {}: {what}", round.index + 1, round.seed, record.name);
}

/// The time since `since` as text, for the last progress message.
pub fn elapsed_text(since: Instant) -> String {
    let took: Duration = since.elapsed();
    format!("{} min {} s", took.as_secs() / 60, took.as_secs() % 60)
}
