//! Shows the events of a download: as bars, as lines, or as JSON.
//!
//! A thread of its own does it, because terminals and pipes may be slow and a
//! download must not wait for them: what is not shown in time is left out.

mod bar;
mod board;
mod json;
mod lines;
mod queue;
mod words;

use super::{exit::Code, relays::Choice};
use queue::Queue;
use std::{io, sync::Arc, thread::JoinHandle, time::Duration};
use thalweg_base::job::Event;

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Bars and a line per path, on standard error.
    Bar,
    /// A plain line now and then, on standard error.
    Lines,
    /// One JSON object per event, on standard output.
    Json,
    /// Errors alone.
    Quiet,
}

/// What is to be shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// A remark for the user.
    Said(String),
    /// So many downloads there are.
    Planned {
        /// How many.
        count: usize,
    },
    /// A download's turn has come.
    Begun {
        /// Its number, from 0.
        item: usize,
        /// Its URL.
        url: String,
    },
    /// How a download's relays were chosen.
    Relays {
        /// Its number.
        item: usize,
        /// Which, and why.
        choice: Choice,
        /// Whether people want to know.
        aloud: bool,
    },
    /// Something happened to a download.
    Event {
        /// Its number.
        item: usize,
        /// What.
        event: Event,
    },
    /// A download failed and is tried again.
    Again {
        /// Its number.
        item: usize,
        /// Its URL.
        url: String,
        /// Why it failed.
        why: String,
        /// The time until then.
        wait: Duration,
        /// Which further try it will be, from 1.
        attempt: u32,
        /// How many there are at most.
        of: u32,
    },
    /// A download failed for good.
    Failed {
        /// Its number.
        item: usize,
        /// Its URL; empty if none was begun.
        url: String,
        /// Why.
        why: String,
        /// Its exit code.
        code: Code,
        /// Bytes that the same command takes over.
        kept: u64,
        /// What can be done about it.
        hints: Vec<String>,
    },
}

impl Note {
    /// The download that it is about.
    fn item(&self) -> Option<usize> {
        match self {
            Self::Said(_) | Self::Planned { .. } => None,
            Self::Begun { item, .. }
            | Self::Relays { item, .. }
            | Self::Event { item, .. }
            | Self::Again { item, .. }
            | Self::Failed { item, .. } => Some(*item),
        }
    }

    /// The download of which it tells how far it is.
    fn progress_of(&self) -> Option<usize> {
        match self {
            Self::Event { item, event: Event::Progress { .. } } => Some(*item),
            _ => None,
        }
    }
}

/// Where notes go.
pub struct Display {
    queue: Arc<Queue>,
    thread: JoinHandle<()>,
}

impl Display {
    /// Starts the thread.
    pub fn start(style: Style) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let notes = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("display".into());
        let thread = thread.spawn(move || show(style, &notes))?;
        Ok(Self { queue, thread })
    }

    /// Shows this when its turn comes. Never blocks.
    pub fn tell(&self, note: Note) {
        self.queue.push(note);
    }

    /// Waits until all is shown.
    pub fn finish(self) {
        self.queue.close();
        // If it panicked, that was printed.
        _ = self.thread.join();
        let lost = self.queue.lost();
        if lost > 0 {
            say(&format!("{lost} events were not shown: the reader was too slow"));
        }
    }
}

fn show(style: Style, queue: &Queue) {
    match style {
        Style::Bar => bar::run(queue),
        Style::Lines => lines::run(queue),
        Style::Json => json::run(queue),
        Style::Quiet => quiet(queue),
    }
}

fn quiet(queue: &Queue) {
    let mut several = false;
    while let Some(note) = queue.next() {
        several |= matches!(note, Note::Planned { count } if count > 1);
        words::failure(&note, several).iter().for_each(|line| say(line));
    }
}

/// A line on standard error; who does not read it does not stop the download.
fn say(line: &str) {
    thalweg_console::note!("{line}");
}
