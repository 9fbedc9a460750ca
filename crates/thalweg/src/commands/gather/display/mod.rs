//! Shows what happens: as bars, as lines, or as JSON.
//!
//! A thread of its own does it, because terminals and pipes may be slow and a collection must not
//! wait for them: what is not shown in time is left out.

mod bars;
mod json;
mod lines;

use super::words;
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
    thread: Mutex<Option<JoinHandle<bool>>>,
    lost: AtomicU64,
    planned: Mutex<Option<Forecast>>,
    /// Files are collected for standard output.
    listed: Mutex<String>,
    lists: bool,
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
        let (lost, planned, listed) = (AtomicU64::new(0), Mutex::new(None), Mutex::default());
        let lists = verbose && style != Style::Json;
        Ok(Self { notes, thread, lost, planned, listed, lists })
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

    /// The files that were told, a line each, if they are for standard output.
    pub fn listed(&self) -> String {
        std::mem::take(&mut *lock(&self.listed))
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
        if let Event::Files { source, files } = &event
            && self.lists
        {
            lock(&self.listed).push_str(&words::files(source, files));
            return;
        }
        self.push(Note::Event(Box::new(event)));
    }
}

/// Held for a few instructions only.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// False: standard output could not be written.
fn show(command: &str, style: Style, verbose: bool, notes: &Receiver<Note>) -> bool {
    match style {
        Style::Json => return json::run(command, notes),
        Style::Bars => bars::run(command, verbose, notes),
        Style::Lines => lines::run(command, verbose, notes),
        Style::Quiet => notes.iter().for_each(|note| lines::of_trouble(command, &note)),
    }
    true
}

/// A line on standard error; who does not read it does not stop the collection. What would move the
/// cursor is told by its number: names come from other hosts.
fn say(line: &str) {
    let letter = |c: char| match c.is_control() && c != '\n' {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    _ = writeln!(io::stderr(), "{}", line.chars().map(letter).collect::<String>());
}
