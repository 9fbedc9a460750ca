//! Shows the events of a cast.

use super::messages;
pub use crate::commands::screen::Style;
use crate::commands::screen::{DisplayedEvent, Screen};
use parking_lot::Mutex;
use serde::Serialize;
use std::{collections::BTreeMap, io, time::Duration};
use thalweg_base::sample::FailureSample;
use thalweg_cast::source::{Event, EventSink, Outcome};
use thalweg_wire::mesh::Name;

/// An event with what the display adds to it. As JSON it is the event alone.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct AnnotatedEvent {
    event: Event,
    /// Whether the user has seen this message or many similar ones.
    #[serde(skip)]
    is_known: bool,
    /// Lines to print before it: for each reason, how many receivers were not named.
    #[serde(skip)]
    summary: Vec<String>,
}

impl DisplayedEvent for AnnotatedEvent {
    const INITIAL_TEXT: &'static str = "reading the files …";

    const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

    fn note(text: String) -> Self {
        Self { event: Event::Note { text }, is_known: false, summary: Vec::new() }
    }

    fn is_progress(&self) -> bool {
        matches!(self.event, Event::Progress { .. } | Event::Hashing { .. })
    }

    fn progress_lines(&self, verbose: bool) -> Vec<String> {
        messages::progress_lines(&self.event, verbose)
    }

    fn message_lines(&self, verbose: bool) -> Vec<String> {
        let lines = match self.is_known && !verbose {
            true => Vec::new(),
            false => messages::message_lines(&self.event, verbose),
        };
        let summary = if verbose { &[][..] } else { &self.summary };
        summary.iter().cloned().chain(lines).collect()
    }

    fn is_trouble(&self) -> bool {
        match &self.event {
            Event::Refused { again: false, .. } | Event::Broken { .. } => true,
            Event::LinksRefused { .. } | Event::FileFailed { .. } | Event::MoreFailed { .. } => {
                true
            }
            Event::Ended(totals) => totals.outcome != Outcome::Complete,
            _ => false,
        }
    }
}

/// The messages shown so far. A receiver's message is shown once, and of many similar ones only the first.
#[derive(Debug, Default)]
struct ShownMessages {
    last: BTreeMap<Name, LastMessage>,
    sample: FailureSample,
}

/// The last messages about one receiver.
#[derive(Debug, Default)]
struct LastMessage {
    /// Why it was not reached or refused, without digits, because amounts change all the time.
    why: Option<String>,
    held: Option<u64>,
}

impl ShownMessages {
    /// Returns whether this message about the receiver was the last one, too, or is one of many similar ones. Records
    /// the event.
    fn is_known(&mut self, event: &Event) -> bool {
        match event {
            // A final refusal is always shown, unless many receivers refuse for the same reason.
            Event::Refused { receiver, why, again } => {
                let is_same = self.is_same(receiver, "refused", why);
                *again && is_same || !self.sample.takes("", &why.replace(receiver.as_str(), ""))
            }
            Event::Unreached { receiver, why } => {
                let is_same = self.is_same(receiver, "away", why);
                is_same || !self.sample.takes("away", &why.replace(receiver.as_str(), ""))
            }
            Event::Accepted { receiver, held_bytes } => {
                let last = self.last.entry(receiver.clone()).or_default();
                let is_same = last.held.replace(*held_bytes) == Some(*held_bytes);
                if !is_same {
                    // The receiver made progress since: its next failure is news.
                    last.why = None;
                }
                is_same
            }
            _ => false,
        }
    }

    /// Returns how many receivers were not named, by reason, if `event` ends the cast.
    fn summary(&self, event: &Event) -> Vec<String> {
        let is_end = matches!(event, Event::Ended(_));
        let more = self.sample.more().into_iter().filter(|_| is_end);
        more.map(|more| more.to_string()).collect()
    }

    fn is_same(&mut self, receiver: &Name, how: &str, why: &str) -> bool {
        let words: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
        let now = format!("{how}: {words}");
        let last = self.last.entry(receiver.clone()).or_default();
        last.why.replace(now.clone()).is_some_and(|before| before == now)
    }
}

/// Shows the events.
#[derive(Debug)]
pub struct CastDisplay {
    screen: Screen<AnnotatedEvent>,
    shown: Mutex<ShownMessages>,
}

impl CastDisplay {
    /// Starts the display.
    ///
    /// # Errors
    /// As [`Screen::start`].
    pub fn start(style: Style, verbose: bool) -> io::Result<Self> {
        let screen = Screen::start(style, verbose)?;
        Ok(Self { screen, shown: Mutex::default() })
    }

    /// Shows a note.
    pub fn note(&self, text: String) {
        self.screen.note(text);
    }

    /// Shows that the cast failed, and why.
    pub fn failed(&self, why: String, code: u8) {
        self.screen.failed(why, code);
    }

    /// As [`Screen::finish`].
    pub fn finish(&self) -> bool {
        self.screen.finish()
    }
}

impl EventSink for CastDisplay {
    fn event(&self, event: &Event) {
        let mut shown = self.shown.lock();
        let is_known = shown.is_known(event);
        let summary = shown.summary(event);
        drop(shown);
        self.screen.event(AnnotatedEvent { event: event.clone(), is_known, summary });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_refusal_is_shown_once() {
        let mut shown = ShownMessages::default();
        let receiver: Name = "full".parse().unwrap();
        let refused = |why: &str, again: bool| Event::Refused {
            receiver: receiver.clone(),
            why: why.to_owned(),
            again,
        };
        let unreached = || Event::Unreached { receiver: receiver.clone(), why: "room".to_owned() };
        let accepted = |held_bytes: u64| Event::Accepted { receiver: receiver.clone(), held_bytes };
        let events = [
            refused("room for 5 B", true),
            refused("room for 17 B", true),
            refused("busy", true),
            unreached(),
            unreached(),
            accepted(10),
            unreached(),
            accepted(10),
            unreached(),
            refused("busy", false),
            refused("busy", false),
        ];
        let known: Vec<bool> = events.iter().map(|event| shown.is_known(event)).collect();
        let expected = [false, true, false, false, true, false, false, true, true, false, false];
        assert_eq!(known, expected);
    }

    #[test]
    fn only_the_first_of_many_equal_refusals_are_named() {
        let mut shown = ShownMessages::default();
        let refused = |n: u32| Event::Refused {
            receiver: format!("n{n}").parse().unwrap(),
            why: format!("n{n} has no room for {n} B"),
            again: false,
        };
        let named = (0..40).filter(|n| !shown.is_known(&refused(*n))).count();
        assert_eq!(named, 10);
        assert!(shown.summary(&refused(7)).is_empty(), "the summary comes only at the end");
        let summary = shown.summary(&Event::Ended(Default::default()));
        assert!(summary.len() == 1 && summary[0].contains("30 more"), "{summary:?}");
    }

    #[test]
    fn as_json_it_is_the_event_alone() {
        let note = AnnotatedEvent::note("x".to_owned());
        assert_eq!(serde_json::to_string(&note).unwrap(), r#"{"event":"note","text":"x"}"#);
    }
}
