//! Plain lines on standard error, for logs.

use super::{Note, Shown, say};
use std::{sync::mpsc::Receiver, time::Instant};

/// Shows all.
pub fn run<E: Shown>(command: &str, verbose: bool, notes: &Receiver<Note<E>>) {
    let mut last = Instant::now();
    for note in notes {
        match &note {
            Note::Event(event) if event.is_progress() => {
                if last.elapsed() >= E::EVERY {
                    of_event(command, verbose, &**event);
                    last = Instant::now();
                }
            }
            Note::Event(event) => of_event(command, verbose, &**event),
            Note::Failed(..) => of_trouble(command, &note),
        }
    }
}

/// What is told of an event.
pub fn of_event<E: Shown>(command: &str, verbose: bool, event: &E) {
    for line in event.told(verbose) {
        match event.is_trouble() {
            true => say(&format!("thalweg {command}: {line}")),
            false => say(&line),
        }
    }
}

/// What even those want to know who want quiet.
pub fn of_trouble<E: Shown>(command: &str, note: &Note<E>) {
    match note {
        Note::Event(event) if event.is_trouble() => of_event(command, false, &**event),
        Note::Event(_) => {}
        Note::Failed(why, _) => say(&format!("thalweg {command}: {why}")),
    }
}
