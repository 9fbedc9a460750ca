//! Bars on a terminal, redrawn in place, with lines above them.

use super::{Queue, download_states::DownloadStates, lines::LineFormatter, say};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};
use thalweg_console::plain;

/// The longest time between two drawings, so that clocks advance while nothing arrives.
const REDRAW: Duration = Duration::from_millis(500);

/// Shows the events until the queue is closed.
pub fn run(queue: &Queue) {
    // On a terminal that cannot redraw (TERM=dumb), only the lines are shown.
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{msg}") {
        bar.set_style(style);
    }
    let mut states = DownloadStates::new(Instant::now());
    let mut formatter = LineFormatter::default();
    loop {
        match queue.next_within(REDRAW) {
            Ok(None) => break,
            Ok(Some(note)) => {
                let lines = formatter.lines(&note, &states);
                if !lines.is_empty() {
                    bar.suspend(|| lines.iter().for_each(|line| say(line)));
                }
                states.update(&note, Instant::now());
            }
            Err(()) => {}
        }
        bar.set_message(plain(&states.lines().join("\n")).into_owned());
        bar.tick();
    }
    bar.finish_and_clear();
    states.summary(Instant::now()).iter().for_each(|line| say(line));
}
