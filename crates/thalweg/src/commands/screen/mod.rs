//! Shows the events of a command that moves files: redrawn in place, as lines, or as JSON.
//!
//! A thread of its own does it, because terminals and pipes may be slow and no transfer must wait
//! for them: what is not shown in time is left out.

mod json;
mod lines;
mod live;

use serde::Serialize;
use std::{
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Notes that wait to be shown: a listing of failed files comes at once, and this many wait only if
/// nobody reads any more.
const LENGTH: usize = 65_536;

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// How far it is, redrawn in place below lines of what happens, on standard error.
    Live,
    /// Plain lines, how far it is now and then, on standard error.
    Lines,
    /// One JSON object per event, on standard output.
    Json,
    /// Errors alone.
    Quiet,
}

impl Style {
    /// By `--json` and `--quiet`, and whether standard error is a terminal.
    pub fn of(json: bool, quiet: bool) -> Self {
        match (json, quiet) {
            (true, _) => Self::Json,
            (_, true) => Self::Quiet,
            _ if thalweg_console::stderr_is_terminal() => Self::Live,
            _ => Self::Lines,
        }
    }
}

/// An event as it is shown. As JSON it is an object whose `event` names it.
pub trait Shown: Serialize + Send + 'static {
    /// What a terminal shows before the first event.
    const FIRST: &'static str;

    /// Without a terminal, how far it is is told so often.
    const EVERY: Duration;

    /// A remark.
    fn note(text: String) -> Self;

    /// Whether it says how far all is, and nothing else: the next one says more.
    fn is_progress(&self) -> bool;

    /// How far all is, as it is redrawn in place.
    fn picture(&self, verbose: bool) -> Vec<String>;

    /// Its lines for people; none if it is not worth one. `verbose`: they asked for more.
    fn told(&self, verbose: bool) -> Vec<String>;

    /// Whether even those want to know who want quiet.
    fn is_trouble(&self) -> bool;
}

/// What is to be shown.
#[derive(Debug)]
enum Note<E> {
    /// Something happened.
    Event(Box<E>),
    /// It could not be done, and the exit code.
    Failed(String, u8),
}

/// Where events go.
#[derive(Debug)]
pub struct Screen<E> {
    notes: Mutex<Option<SyncSender<Note<E>>>>,
    thread: Mutex<Option<JoinHandle<bool>>>,
    lost: AtomicU64,
}

impl<E: Shown> Screen<E> {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system gives none.
    pub fn start(style: Style, verbose: bool) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(LENGTH);
        let thread = std::thread::Builder::new().name("display".into());
        let thread = thread.spawn(move || show(style, verbose, &receiver))?;
        let (notes, thread) = (Mutex::new(Some(sender)), Mutex::new(Some(thread)));
        Ok(Self { notes, thread, lost: AtomicU64::new(0) })
    }

    /// Shows this when its turn comes. Never blocks.
    pub fn event(&self, event: E) {
        self.push(Note::Event(Box::new(event)));
    }

    /// A remark.
    pub fn note(&self, text: String) {
        self.event(E::note(text));
    }

    /// It could not be done.
    pub fn failed(&self, why: String, code: u8) {
        self.push(Note::Failed(why, code));
    }

    /// Waits until all is shown; what comes later is not. False: standard output could not be written,
    /// which was said.
    pub fn finish(&self) -> bool {
        drop(lock(&self.notes).take());
        // If it panicked, that was printed.
        let written = lock(&self.thread).take().is_none_or(|thread| thread.join().unwrap_or(false));
        let lost = self.lost.load(Relaxed);
        if lost > 0 {
            say(&format!("{lost} events were not shown: the reader was too slow"));
        }
        written
    }

    fn push(&self, note: Note<E>) {
        let is_progress = matches!(&note, Note::Event(event) if event.is_progress());
        let sent = lock(&self.notes).as_ref().map(|notes| notes.try_send(note));
        // The next one tells more than one that is left out.
        if matches!(sent, Some(Err(TrySendError::Full(_)))) && !is_progress {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// Held for a few instructions only.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// False: standard output could not be written.
fn show<E: Shown>(style: Style, verbose: bool, notes: &Receiver<Note<E>>) -> bool {
    match style {
        Style::Json => return json::run(notes),
        Style::Live => live::run(verbose, notes),
        Style::Lines => lines::run(verbose, notes),
        Style::Quiet => notes.iter().for_each(|note| lines::of_trouble(&note)),
    }
    true
}

/// Writes a line to standard error. A blocked reader does not stop the transfer.
fn say(line: &str) {
    thalweg_console::note!("{line}");
}
