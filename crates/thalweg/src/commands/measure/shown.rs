//! What is shown while it measures: a line that changes on a terminal, lines elsewhere.

use super::Args;
use crate::commands::gather::words::{rate, size, time};
use indicatif::ProgressBar;
use serde_json::json;
use std::time::Duration;
use thalweg_console::{note, plain, say_line};
use thalweg_measure::estimators::Progress;
use thalweg_probe::trains::Event;

/// Lines of logs are so far apart.
const EVERY: Duration = Duration::from_secs(5);

/// Where it is shown.
pub enum Shown {
    Nowhere,
    Json,
    Live(ProgressBar),
    /// When the last line was written, since the beginning.
    Lines(Duration),
}

impl Shown {
    /// As the arguments and the terminal have it.
    pub fn new(args: &Args) -> Self {
        match () {
            () if args.json => Self::Json,
            () if args.quiet => Self::Nowhere,
            () if thalweg_console::stderr_is_terminal() => Self::Live(ProgressBar::new_spinner()),
            () => Self::Lines(Duration::ZERO),
        }
    }

    /// One train more.
    pub fn event(&mut self, event: &Event) {
        match self {
            Self::Nowhere => {}
            // Nobody reads any more: the result will say so.
            Self::Json => _ = say_line(json(event)),
            Self::Live(bar) => {
                bar.set_message(plain(&words(event)).into_owned());
                bar.tick();
            }
            Self::Lines(last) if event.cost.took >= *last + EVERY => {
                *last = event.cost.took;
                note!("{}", words(event));
            }
            Self::Lines(_) => {}
        }
    }

    /// It is over.
    pub fn end(&self) {
        if let Self::Live(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn json(event: &Event) -> serde_json::Value {
    let Event { progress, cost } = event;
    json!({
        "event": "train", "trains": progress.trains, "phase": progress.phase,
        "low": progress.between.map(|(low, _)| low),
        "high": progress.between.and_then(|(_, high)| high),
        "probe_bytes": cost.bytes, "seconds": cost.took.as_secs_f64(),
    })
}

fn words(event: &Event) -> String {
    let Event { progress, cost } = event;
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
