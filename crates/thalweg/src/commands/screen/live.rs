//! The progress on a terminal, redrawn in place, with lines above it.

use super::{Note, Shown, lines};
use indicatif::{ProgressBar, ProgressStyle};
use std::sync::mpsc::Receiver;
use thalweg_console::plain;

/// Shows the events.
pub fn run<E: Shown>(verbose: bool, notes: &Receiver<Note<E>>) {
    // On a terminal that cannot redraw (TERM=dumb), only the lines are shown.
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        bar.set_style(style);
    }
    bar.set_message(E::FIRST);
    bar.tick();
    for note in notes {
        match &note {
            Note::Event(event) if event.is_progress() => {
                bar.set_message(plain(&event.picture(verbose).join("\n")).into_owned());
                bar.tick();
            }
            Note::Event(event) => bar.suspend(|| lines::of_event(verbose, &**event)),
            Note::Failed(..) => bar.suspend(|| lines::of_trouble(&note)),
        }
    }
    bar.finish_and_clear();
}
