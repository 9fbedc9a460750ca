//! What a screen shows of a cast.

use super::words;
pub use crate::commands::screen::Style;
use crate::commands::screen::{Screen, Shown};
use std::{io, time::Duration};
use thalweg_node::cast::source::{Event, EventSink, Outcome};

impl Shown for Event {
    const FIRST: &'static str = "looking what there is …";

    const EVERY: Duration = Duration::from_secs(10);

    fn note(text: String) -> Self {
        Self::Note { text }
    }

    fn is_progress(&self) -> bool {
        matches!(self, Self::Progress { .. } | Self::Hashing { .. })
    }

    fn picture(&self, verbose: bool) -> Vec<String> {
        words::picture(self, verbose)
    }

    fn told(&self, verbose: bool) -> Vec<String> {
        words::told(self, verbose)
    }

    fn is_trouble(&self) -> bool {
        match self {
            Self::Refused { again: false, .. } | Self::Broken { .. } => true,
            Self::Ended(totals) => totals.outcome != Outcome::Complete,
            _ => false,
        }
    }
}

/// Where events go.
#[derive(Debug)]
pub struct Display(Screen<Event>);

impl Display {
    /// Starts a screen.
    ///
    /// # Errors
    /// As [`Screen::start`].
    pub fn start(style: Style, verbose: bool) -> io::Result<Self> {
        Screen::start("cast", style, verbose).map(Self)
    }

    /// A remark.
    pub fn note(&self, text: String) {
        self.0.note(text);
    }

    /// It could not be done.
    pub fn failed(&self, why: String, code: u8) {
        self.0.failed(why, code);
    }

    /// As [`Screen::finish`].
    pub fn finish(&self) -> bool {
        self.0.finish()
    }
}

impl EventSink for Display {
    fn event(&self, event: &Event) {
        self.0.event(event.clone());
    }
}
