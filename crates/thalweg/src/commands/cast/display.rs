//! Shows what happens: as lines, or as JSON.
//!
//! A thread of its own does it, because terminals and pipes may be slow and a cast must not wait for
//! them: what is not shown in time is left out, but for what is said at the end.

use super::words;
use std::{
    io::{self, Write as _},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use thalweg_node::cast::source::{Event, EventSink};

/// Notes that wait to be shown: some of each of 300 receivers at once, and this many wait only if
/// nobody reads any more.
const LENGTH: usize = 4096;

/// Without a terminal, how far it is is told so often.
const SELDOM: Duration = Duration::from_secs(10);

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Lines as things happen, and how far it is each second, on standard error.
    Live,
    /// The same, how far it is now and then.
    Lines,
    /// One JSON object per event, on standard output.
    Json,
    /// Errors alone.
    Quiet,
}

/// What is to be shown.
#[derive(Debug)]
enum Note {
    Event(Box<Event>),
    Text(String),
    /// It could not be done, and the exit code.
    Failed(String, u8),
}

/// Where events go.
#[derive(Debug)]
pub struct Display {
    notes: Mutex<Option<SyncSender<Note>>>,
    thread: Mutex<Option<JoinHandle<bool>>>,
    lost: AtomicU64,
}

impl Display {
    /// Begins to show.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(style: Style, verbose: bool) -> io::Result<Self> {
        let (notes, waiting) = sync_channel(LENGTH);
        let show = move || Shown { style, verbose, last: None }.all(&waiting);
        let thread = std::thread::Builder::new().name("display".to_owned()).spawn(show)?;
        let (notes, thread) = (Mutex::new(Some(notes)), Mutex::new(Some(thread)));
        Ok(Self { notes, thread, lost: AtomicU64::new(0) })
    }

    fn put(&self, note: Note, must: bool) {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(notes) = &*notes else { return };
        match notes.try_send(note) {
            // The end is worth a wait, if anybody reads.
            Err(TrySendError::Full(note)) if must => _ = notes.send(note),
            Err(_) => _ = self.lost.fetch_add(1, Relaxed),
            Ok(()) => {}
        }
    }

    /// Something to be told beside events.
    pub fn note(&self, text: String) {
        self.put(Note::Text(text), false);
    }

    /// It could not be done.
    pub fn failed(&self, why: String, code: u8) {
        self.put(Note::Failed(why, code), true);
    }

    /// Shows what waits; whether standard output took all of it.
    pub fn finish(&self) -> bool {
        drop(self.notes.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let written = thread.is_none_or(|thread| thread.join().unwrap_or(false));
        let lost = self.lost.load(Relaxed);
        if lost > 0 {
            thalweg_console::note!("thalweg cast: {lost} events were not shown: nobody read");
        }
        written
    }
}

impl EventSink for Display {
    fn event(&self, event: &Event) {
        let must = matches!(event, Event::Ended(_) | Event::Received { .. });
        self.put(Note::Event(Box::new(event.clone())), must);
    }
}

struct Shown {
    style: Style,
    verbose: bool,
    /// When it was last told how far it is.
    last: Option<Instant>,
}

impl Shown {
    fn all(mut self, notes: &Receiver<Note>) -> bool {
        let mut is_written = true;
        for note in notes {
            match note {
                Note::Event(event) if self.style == Style::Json => {
                    is_written &= json(&serde_json::to_string(&event).unwrap_or_default());
                }
                Note::Event(event) => self.tell(&event),
                Note::Text(text) if self.style != Style::Quiet => {
                    thalweg_console::note!("thalweg cast: {text}");
                }
                Note::Text(_) => {}
                Note::Failed(why, code) => {
                    thalweg_console::note!("thalweg cast: {why}");
                    if self.style == Style::Json {
                        let line = serde_json::json!({"event": "failed", "why": why, "code": code});
                        is_written &= json(&line.to_string());
                    }
                }
            }
        }
        is_written
    }

    fn tell(&mut self, event: &Event) {
        if matches!(event, Event::Progress { .. } | Event::Hashing { .. }) {
            let pause = if self.style == Style::Live { Duration::ZERO } else { SELDOM };
            let last = *self.last.get_or_insert_with(Instant::now);
            if last.elapsed() < pause {
                return;
            }
            self.last = Some(Instant::now());
        }
        let is_failure =
            matches!(event, Event::Refused { again: false, .. } | Event::Broken { .. });
        if self.style == Style::Quiet && !is_failure {
            return;
        }
        for line in words::told(event, self.verbose) {
            thalweg_console::note!("{line}");
        }
    }
}

fn json(line: &str) -> bool {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}
