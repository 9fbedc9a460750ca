//! Plain lines on standard error, for logs.

use super::{Note, Shown, say};
use std::{sync::mpsc::Receiver, time::Instant};

/// Prints the events.
pub fn run<E: Shown>(verbose: bool, notes: &Receiver<Note<E>>) {
    let mut last = Instant::now();
    for note in notes {
        match &note {
            Note::Event(event) if event.is_progress() => {
                if last.elapsed() >= E::EVERY {
                    of_event(verbose, &**event);
                    last = Instant::now();
                }
            }
            Note::Event(event) => of_event(verbose, &**event),
            Note::Failed(..) => of_trouble(&note),
        }
    }
}

/// Prints the lines of an event.
pub fn of_event<E: Shown>(verbose: bool, event: &E) {
    for line in event.told(verbose) {
        match event.is_trouble() {
            true => say(&format!("thalweg: {line}")),
            false => say(&line),
        }
    }
}

/// Prints trouble, which is shown even with `--quiet`.
pub fn of_trouble<E: Shown>(note: &Note<E>) {
    match note {
        Note::Event(event) if event.is_trouble() => of_event(false, &**event),
        Note::Event(_) => {}
        Note::Failed(why, _) => say(&format!("thalweg: {why}")),
    }
}
