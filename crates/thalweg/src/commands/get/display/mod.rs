//! Shows the events of downloads: as bars, as lines, or as JSON.
//!
//! A separate thread does it, because terminals and pipes may be slow and a download must not wait for them. Events
//! that cannot be shown in time are dropped.

mod bar;
mod download_states;
mod json;
mod lines;
mod messages;
mod queue;

use super::{exit::Code, relays::Choice};
use queue::Queue;
use std::{io, sync::Arc, thread::JoinHandle, time::Duration};
use thalweg_base::{job::Event, verdict::Verdict};

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisplayStyle {
    /// Bars and a line per path, on standard error.
    Bar,
    /// A plain line every few seconds, on standard error.
    Lines,
    /// One JSON object per event, on standard output.
    Json,
    /// Only errors.
    Quiet,
}

/// Something to show.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// A remark for the user.
    Text(String),
    /// The number of downloads is known.
    Planned {
        /// The number of downloads.
        count: usize,
    },
    Begun {
        /// Its number, from 0.
        item: usize,
        url: String,
    },
    /// The relays of a download were chosen.
    Relays {
        item: usize,
        /// The choice and its reasons.
        choice: Choice,
        /// Whether to show it to people.
        aloud: bool,
    },
    /// An event of a download.
    Event { item: usize, event: Event },
    /// Why a finished download took as long as it did.
    Verdict {
        item: usize,
        url: String,
        verdict: Verdict,
        /// Whether to show it to people.
        aloud: bool,
    },
    /// A download failed and will be retried.
    Again {
        item: usize,
        url: String,
        why: String,
        /// The time until the retry.
        wait: Duration,
        /// The number of the retry, from 1.
        attempt: u32,
        /// The maximum number of retries.
        of: u32,
    },
    /// A download failed for good.
    Failed {
        item: usize,
        /// Its URL; empty if it did not begin.
        url: String,
        why: String,
        code: Code,
        /// Bytes kept, with which the same command continues.
        kept: u64,
        /// What the user can do about it.
        hints: Vec<String>,
    },
}

impl Note {
    /// The number of the download that the note is about.
    fn item(&self) -> Option<usize> {
        match self {
            Self::Text(_) | Self::Planned { .. } => None,
            Self::Begun { item, .. }
            | Self::Relays { item, .. }
            | Self::Event { item, .. }
            | Self::Verdict { item, .. }
            | Self::Again { item, .. }
            | Self::Failed { item, .. } => Some(*item),
        }
    }

    /// The number of the download whose progress the note reports.
    fn progress_of(&self) -> Option<usize> {
        match self {
            Self::Event { item, event: Event::Progress { .. } } => Some(*item),
            _ => None,
        }
    }
}

/// Shows notes on a thread of its own.
pub struct Display {
    queue: Arc<Queue>,
    thread: JoinHandle<()>,
}

impl Display {
    /// Starts the thread that prints the notes.
    pub fn start(style: DisplayStyle) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let notes = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("display".into());
        let thread = thread.spawn(move || show(style, &notes))?;
        Ok(Self { queue, thread })
    }

    /// Queues a note. Never blocks.
    pub fn tell(&self, note: Note) {
        self.queue.push(note);
    }

    /// Waits until all notes are shown.
    pub fn finish(self) {
        self.queue.close();
        // If the thread panicked, the panic was printed.
        _ = self.thread.join();
        let lost = self.queue.lost();
        if lost > 0 {
            say(&format!("{lost} events were not shown: the reader was too slow"));
        }
    }
}

fn show(style: DisplayStyle, queue: &Queue) {
    match style {
        DisplayStyle::Bar => bar::run(queue),
        DisplayStyle::Lines => lines::run(queue),
        DisplayStyle::Json => json::run(queue),
        DisplayStyle::Quiet => quiet(queue),
    }
}

fn quiet(queue: &Queue) {
    let mut several = false;
    while let Some(note) = queue.next() {
        several |= matches!(note, Note::Planned { count } if count > 1);
        messages::failure(&note, several).iter().for_each(|line| say(line));
    }
}

/// Prints a line on standard error; a closed standard error does not stop the download.
fn say(line: &str) {
    thalweg_console::note!("{line}");
}
