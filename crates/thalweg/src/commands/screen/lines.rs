//! Plain lines on standard error, for logs.

use super::{DisplayedEvent, ScreenMessage, say};
use std::time::Instant;

/// Prints the events line by line.
pub fn run<E: DisplayedEvent>(verbose: bool, notes: impl Iterator<Item = ScreenMessage<E>>) {
    let mut last = Instant::now();
    for note in notes {
        match &note {
            ScreenMessage::Event(event) if event.is_progress() => {
                if last.elapsed() >= E::PROGRESS_INTERVAL {
                    print_event(verbose, &**event);
                    last = Instant::now();
                }
            }
            ScreenMessage::Event(event) => print_event(verbose, &**event),
            ScreenMessage::Failed(..) => print_trouble(&note),
        }
    }
}

/// Prints the lines of an event.
pub fn print_event<E: DisplayedEvent>(verbose: bool, event: &E) {
    for line in event.message_lines(verbose) {
        match event.is_trouble() {
            true => say(&format!("thalweg: {line}")),
            false => say(&line),
        }
    }
}

/// Prints trouble, which is shown even with `--quiet`.
pub fn print_trouble<E: DisplayedEvent>(note: &ScreenMessage<E>) {
    match note {
        ScreenMessage::Event(event) if event.is_trouble() => print_event(false, &**event),
        ScreenMessage::Event(_) => {}
        ScreenMessage::Failed(why, _) => say(&format!("thalweg: {why}")),
    }
}
