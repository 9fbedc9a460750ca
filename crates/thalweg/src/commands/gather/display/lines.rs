//! Plain lines on standard error, for logs.

use super::{super::words, Note, say};
use std::{
    sync::mpsc::Receiver,
    time::{Duration, Instant},
};
use thalweg_node::gather::{Event, Outcome};

/// Between two lines about how far it is.
const EVERY: Duration = Duration::from_secs(2);

/// Shows all.
pub fn run(command: &str, verbose: bool, notes: &Receiver<Note>) {
    let mut last = Instant::now();
    for note in notes {
        match &note {
            Note::Event(event) => match &**event {
                Event::Progress(progress) if last.elapsed() >= EVERY => {
                    let behind = words::behind(progress).unwrap_or_default();
                    say(&(words::progress(progress) + &behind));
                    last = Instant::now();
                }
                event => of_event(command, verbose, event),
            },
            Note::Failed(why, _) => say(&format!("thalweg {command}: {why}")),
        }
    }
}

/// What is told of an event.
pub fn of_event(command: &str, verbose: bool, event: &Event) {
    for line in words::told(event, verbose) {
        match is_trouble(event) {
            true => say(&format!("thalweg {command}: {line}")),
            false => say(&line),
        }
    }
}

/// What even those want to know who want quiet.
pub fn of_trouble(command: &str, note: &Note) {
    match note {
        Note::Event(event) if is_trouble(event) => of_event(command, false, event),
        Note::Event(_) => {}
        Note::Failed(why, _) => say(&format!("thalweg {command}: {why}")),
    }
}

fn is_trouble(event: &Event) -> bool {
    match event {
        Event::SourceFailed { .. } | Event::FileFailed { .. } => true,
        Event::Ended(totals) => {
            totals.late || !matches!(totals.outcome, Outcome::Complete | Outcome::Planned)
        }
        _ => false,
    }
}
