//! The progress display of a collection, and the numbers for its final summary.

mod bars;

use super::messages;
use crate::commands::screen::{DisplayedEvent, Screen, Style};
use parking_lot::Mutex;
use std::{io, time::Duration};
use thalweg_gather::{Event, EventSink, Forecast, Outcome};

impl DisplayedEvent for Event {
    const INITIAL_TEXT: &'static str = "listing files …";

    const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

    fn note(text: String) -> Self {
        Self::Note { text }
    }

    fn is_progress(&self) -> bool {
        matches!(self, Self::Progress(_))
    }

    fn progress_lines(&self, _: bool) -> Vec<String> {
        match self {
            Self::Progress(progress) => bars::progress_lines(progress),
            _ => Vec::new(),
        }
    }

    fn message_lines(&self, verbose: bool) -> Vec<String> {
        messages::message_lines(self, verbose)
    }

    fn is_trouble(&self) -> bool {
        match self {
            Self::SourceFailed { .. } | Self::FileFailed { .. } | Self::MoreFailed { .. } => true,
            Self::Ended(totals) => {
                let is_planned = totals.outcome == Outcome::Planned;
                let leaves_out = totals.failed_files + totals.failed_sources > 0;
                let is_fine = totals.outcome == Outcome::Complete || is_planned && !leaves_out;
                totals.late || !is_fine
            }
            _ => false,
        }
    }
}

/// Shows the events.
#[derive(Debug)]
pub struct GatherDisplay {
    screen: Screen<Event>,
    planned: Mutex<Option<Forecast>>,
    /// The lines of listed files, for standard output.
    listed: Mutex<String>,
    lists: bool,
}

impl GatherDisplay {
    /// Starts the display.
    ///
    /// # Errors
    /// As [`Screen::start`].
    pub fn start(style: Style, verbose: bool) -> io::Result<Self> {
        let screen = Screen::start(style, verbose)?;
        let lists = verbose && style != Style::Json;
        Ok(Self { screen, planned: Mutex::default(), listed: Mutex::default(), lists })
    }

    /// Shows a note.
    pub fn note(&self, text: String) {
        self.screen.note(text);
    }

    /// Takes the last plan.
    pub fn planned(&self) -> Option<Forecast> {
        self.planned.lock().take()
    }

    /// Shows that the collection failed, and why.
    pub fn failed(&self, why: String, code: u8) {
        self.screen.failed(why, code);
    }

    /// Takes the lines of listed files, if they are for standard output.
    pub fn listed(&self) -> String {
        std::mem::take(&mut *self.listed.lock())
    }

    /// As [`Screen::finish`].
    pub fn finish(&self) -> bool {
        self.screen.finish()
    }
}

impl EventSink for GatherDisplay {
    fn event(&self, event: Event) {
        if let Event::Planned(forecast) = &event {
            *self.planned.lock() = Some(forecast.clone());
        }
        if let Event::Files { source, files } = &event
            && self.lists
        {
            self.listed.lock().push_str(&messages::files(source, files));
            return;
        }
        self.screen.event(event);
    }
}
