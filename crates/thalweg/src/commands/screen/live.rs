//! The progress on a terminal, redrawn in place, with lines above it.

use super::{DisplayedEvent, ScreenMessage, lines};
use indicatif::{ProgressBar, ProgressStyle};
use thalweg_console::plain;

/// Shows the events, with the progress redrawn in place.
pub fn run<E: DisplayedEvent>(verbose: bool, notes: impl Iterator<Item = ScreenMessage<E>>) {
    // On a terminal that cannot redraw (TERM=dumb), only the lines are shown.
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        bar.set_style(style);
    }
    bar.set_message(E::INITIAL_TEXT);
    bar.tick();
    for note in notes {
        match &note {
            ScreenMessage::Event(event) if event.is_progress() => {
                bar.set_message(plain(&event.progress_lines(verbose).join("\n")).into_owned());
                bar.tick();
            }
            ScreenMessage::Event(event) => bar.suspend(|| lines::print_event(verbose, &**event)),
            ScreenMessage::Failed(..) => bar.suspend(|| lines::print_trouble(&note)),
        }
    }
    bar.finish_and_clear();
}
