//! Shows what happens: as bars, as lines, or as JSON.
//!
//! A thread of its own does it, because terminals and pipes may be slow and a collection must not
//! wait for them: what is not shown in time is left out.

mod bars;
mod json;
mod lines;

use std::{
    io::{self, Write as _},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};
use thalweg_node::gather::{Event, EventSink, Forecast};

/// Notes that wait to be shown: a listing of failed files comes at once, and this many wait only if
/// nobody reads any more.
const LENGTH: usize = 65_536;

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A bar per source, on standard error.
    Bars,
    /// A plain line now and then, on standard error.
    Lines,
    /// One JSON object per event, on standard output.
    Json,
    /// Errors alone.
    Quiet,
}

/// What is to be shown.
#[derive(Clone, Debug)]
pub enum Note {
    /// Something happened.
    Event(Box<Event>),
    /// It could not be done, and the exit code.
    Failed(String, u8),
}

/// Where events go.
#[derive(Debug)]
pub struct Display {
    notes: Mutex<Option<SyncSender<Note>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    lost: AtomicU64,
    planned: Mutex<Option<Forecast>>,
}

impl Display {
    /// Starts the thread; `command` is named where something is wrong.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn start(command: &'static str, style: Style, verbose: bool) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(LENGTH);
        let thread = std::thread::Builder::new().name("display".into());
        let thread = thread.spawn(move || show(command, style, verbose, &receiver))?;
        let (notes, thread) = (Mutex::new(Some(sender)), Mutex::new(Some(thread)));
        Ok(Self { notes, thread, lost: AtomicU64::new(0), planned: Mutex::new(None) })
    }

    /// A remark.
    pub fn note(&self, text: String) {
        self.event(Event::Note { text });
    }

    /// The plan that was told last.
    pub fn planned(&self) -> Option<Forecast> {
        lock(&self.planned).take()
    }

    /// It could not be done.
    pub fn failed(&self, why: String, code: u8) {
        self.push(Note::Failed(why, code));
    }

    /// Waits until all is shown; what comes later is not.
    pub fn finish(&self) {
        drop(lock(&self.notes).take());
        // If it panicked, that was printed.
        _ = lock(&self.thread).take().map(JoinHandle::join);
        let lost = self.lost.load(Relaxed);
        if lost > 0 {
            say(&format!("{lost} events were not shown: the reader was too slow"));
        }
    }

    fn push(&self, note: Note) {
        let is_progress = matches!(&note, Note::Event(e) if matches!(**e, Event::Progress(_)));
        let sent = lock(&self.notes).as_ref().map(|notes| notes.try_send(note));
        // The next one tells more than one that is left out.
        if matches!(sent, Some(Err(TrySendError::Full(_)))) && !is_progress {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

impl EventSink for Display {
    fn event(&self, event: Event) {
        if let Event::Planned(forecast) = &event {
            *lock(&self.planned) = Some(forecast.clone());
        }
        self.push(Note::Event(Box::new(event)));
    }
}

/// Held for a few instructions only.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn show(command: &str, style: Style, verbose: bool, notes: &Receiver<Note>) {
    match style {
        Style::Bars => bars::run(command, verbose, notes),
        Style::Lines => lines::run(command, verbose, notes),
        Style::Json => json::run(command, notes),
        Style::Quiet => notes.iter().for_each(|note| lines::of_trouble(command, &note)),
    }
}

/// A line on standard error; who does not read it does not stop the collection.
fn say(line: &str) {
    _ = writeln!(io::stderr(), "{line}");
}
