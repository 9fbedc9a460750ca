//! Shows the events of commands that move files: redrawn in place, as lines, or as JSON.
//!
//! A separate thread does it, because terminals and pipes may be slow and a transfer must not wait for them. Events
//! that cannot be shown in time are dropped.

mod json;
mod lines;
mod live;

use super::jobs::report_event;
use parking_lot::Mutex;
use serde::Serialize;
use std::{
    io,
    sync::{
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

/// The most waiting notes. A listing of failed files arrives at once; otherwise the queue fills only if nobody reads
/// it.
const MAX_WAITING: usize = 65_536;

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The progress, redrawn in place below lines about events, on standard error.
    Live,
    /// Plain lines on standard error, with the progress every few seconds.
    Lines,
    /// One JSON object per event, on standard output.
    Json,
    /// Only errors.
    Quiet,
}

impl Style {
    /// Chooses by `--json` and `--quiet`, and by whether standard error is a terminal.
    pub fn choose(json: bool, quiet: bool) -> Self {
        match (json, quiet) {
            (true, _) => Self::Json,
            (_, true) => Self::Quiet,
            _ if thalweg_console::stderr_is_terminal() => Self::Live,
            _ => Self::Lines,
        }
    }
}

/// An event as it is shown. As JSON it is an object whose field `event` names it.
pub trait DisplayedEvent: Serialize + Send + 'static {
    /// What a terminal shows before the first event.
    const INITIAL_TEXT: &'static str;

    /// The interval of progress lines without a terminal.
    const PROGRESS_INTERVAL: Duration;

    fn note(text: String) -> Self;

    /// Whether it is only a progress report, which the next one replaces.
    fn is_progress(&self) -> bool;

    /// The progress, as it is redrawn in place.
    fn progress_lines(&self, verbose: bool) -> Vec<String>;

    /// The lines for people; none if it is not shown. `verbose`: more was asked for.
    fn message_lines(&self, verbose: bool) -> Vec<String>;

    /// Whether it is shown even with `--quiet`.
    fn is_trouble(&self) -> bool;
}

/// Something to show.
#[derive(Debug)]
enum ScreenMessage<E> {
    Event(Box<E>),
    /// The command failed: the reason and the exit code.
    Failed(String, u8),
}

/// Shows events on a thread of its own.
#[derive(Debug)]
pub struct Screen<E> {
    notes: Mutex<Option<SyncSender<ScreenMessage<E>>>>,
    thread: Mutex<Option<JoinHandle<bool>>>,
    lost: AtomicU64,
}

impl<E: DisplayedEvent> Screen<E> {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system allows no further thread.
    pub fn start(style: Style, verbose: bool) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let thread = std::thread::Builder::new().name("display".into());
        let thread = thread.spawn(move || show(style, verbose, &receiver))?;
        let (notes, thread) = (Mutex::new(Some(sender)), Mutex::new(Some(thread)));
        Ok(Self { notes, thread, lost: AtomicU64::new(0) })
    }

    /// Queues an event. Never blocks.
    pub fn event(&self, event: E) {
        self.push(ScreenMessage::Event(Box::new(event)));
    }

    /// Queues a remark.
    pub fn note(&self, text: String) {
        self.event(E::note(text));
    }

    /// Queues the failure of the command.
    pub fn failed(&self, why: String, code: u8) {
        self.push(ScreenMessage::Failed(why, code));
    }

    /// Waits until everything queued is shown; later events are ignored. Returns false if standard output could not be
    /// written, which has been reported.
    pub fn finish(&self) -> bool {
        drop(self.notes.lock().take());
        let written = self.thread.lock().take().is_none_or(|thread| thread.join().unwrap_or(false));
        let lost = self.lost.load(Relaxed);
        if lost > 0 {
            say(&format!("{lost} events were not shown: the reader was too slow"));
        }
        written
    }

    fn push(&self, note: ScreenMessage<E>) {
        let is_progress = matches!(&note, ScreenMessage::Event(event) if event.is_progress());
        let sent = self.notes.lock().as_ref().map(|notes| notes.try_send(note));
        // A dropped progress report is not counted: the next one replaces it.
        if matches!(sent, Some(Err(TrySendError::Full(_)))) && !is_progress {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// Returns false if standard output could not be written.
fn show<E: DisplayedEvent>(
    style: Style,
    verbose: bool,
    notes: &Receiver<ScreenMessage<E>>,
) -> bool {
    // The node lists transfers of terminals, too.
    let notes = notes.iter().inspect(|note| report_event(|| json::object(note)));
    match style {
        Style::Json => return json::run(notes),
        Style::Live => live::run(verbose, notes),
        Style::Lines => lines::run(verbose, notes),
        Style::Quiet => notes.for_each(|note| lines::print_trouble(&note)),
    }
    true
}

/// Writes a line to standard error. A closed standard error does not stop the transfer.
fn say(line: &str) {
    thalweg_console::note!("{line}");
}
