//! The progress of a measurement: one changing line on a terminal, lines elsewhere.

use super::Args;
use crate::commands::gather::messages::{rate, size, time};
use indicatif::ProgressBar;
use serde_json::json;
use std::time::Duration;
use thalweg_console::{note, plain, say_line};
use thalweg_measure::estimators::Progress;
use thalweg_probe::trains::TrainEvent;

/// The time between lines of a log.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// How progress is shown.
pub enum ProgressView {
    Nowhere,
    Json,
    Live(ProgressBar),
    /// The time of the last line, since the beginning.
    Lines(Duration),
}

impl ProgressView {
    /// Chooses by the arguments and the terminal.
    pub fn new(args: &Args) -> Self {
        match () {
            () if args.json => Self::Json,
            () if args.quiet => Self::Nowhere,
            () if thalweg_console::stderr_is_terminal() => Self::Live(ProgressBar::new_spinner()),
            () => Self::Lines(Duration::ZERO),
        }
    }

    /// Shows the state after one more train.
    pub fn event(&mut self, event: &TrainEvent) {
        match self {
            Self::Nowhere => {}
            // If standard output is closed, printing the result reports it.
            Self::Json => _ = say_line(json(event)),
            Self::Live(bar) => {
                bar.set_message(plain(&words(event)).into_owned());
                bar.tick();
            }
            Self::Lines(last) if event.cost.took >= *last + PROGRESS_INTERVAL => {
                *last = event.cost.took;
                note!("{}", words(event));
            }
            Self::Lines(_) => {}
        }
    }

    /// Removes the progress bar, if there is one.
    pub fn end(&self) {
        if let Self::Live(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn json(event: &TrainEvent) -> serde_json::Value {
    let TrainEvent { progress, cost } = event;
    json!({
        "event": "train", "trains": progress.trains, "phase": progress.phase,
        "low": progress.between.map(|(low, _)| low),
        "high": progress.between.and_then(|(_, high)| high),
        "probe_bytes": cost.bytes, "seconds": cost.took.as_secs_f64(),
    })
}

fn words(event: &TrainEvent) -> String {
    let TrainEvent { progress, cost } = event;
    let (spent, took) = (size(cost.bytes), time(cost.took.as_secs_f64()));
    format!("{}, train {}{}, {spent} in {took}", progress.phase, progress.trains, known(progress))
}

fn known(progress: &Progress) -> String {
    match progress.between {
        Some((low, Some(high))) if high > low => {
            format!(", between {} and {}", bits(low), bits(high))
        }
        Some((value, Some(_))) => format!(", about {}", bits(value)),
        Some((low, None)) => format!(", at least {}", bits(low)),
        None => String::new(),
    }
}

/// A rate for people.
pub fn bits(bps: f64) -> String {
    rate(bps.max(0.0) as u64)
}
