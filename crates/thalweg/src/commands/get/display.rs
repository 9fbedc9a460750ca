//! Shows a download's events: as a bar, as lines, or as JSON.
//!
//! A thread of its own does it, because terminals and pipes may be slow and a
//! download must not wait for them: what is not shown in time is left out.

use indicatif::{ProgressBar, ProgressStyle};
use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};
use thalweg_node::job::{Event, EventSink, PathRate};
use thalweg_units::{ByteSize, Rate};

/// Events that wait to be shown. There are a few per path, and one for each
/// failure: this many wait only if nobody reads any more. Then the oldest go.
const QUEUE: usize = 1024;

/// Between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// How events are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// A bar and a line per path, on standard error.
    Bar,
    /// A plain line now and then, on standard error.
    Lines,
    /// One JSON object per event, on standard output.
    Json,
    /// Not at all.
    Quiet,
}

/// The sink of `thalweg get`.
pub(super) struct Display {
    queue: Arc<Queue>,
    thread: JoinHandle<()>,
}

/// What waits to be shown, in the order in which it happened.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// At most [`QUEUE`] events, of which at most one is progress: the latest.
#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    lost: u64,
    closed: bool,
}

impl Display {
    /// Starts the thread.
    pub(super) fn start(style: Style) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let events = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name("display".into());
        let thread = thread.spawn(move || show(style, &mut std::iter::from_fn(|| events.next())));
        Ok(Self { queue, thread: thread? })
    }

    /// Waits until all is shown.
    pub(super) fn finish(self) {
        self.queue.close();
        // If it panicked, that was printed.
        _ = self.thread.join();
        let lost = self.queue.lock().lost;
        if lost > 0 {
            _ = writeln!(io::stderr(), "{lost} events were not shown: the reader was too slow");
        }
    }
}

impl EventSink for Display {
    fn event(&self, event: &Event) {
        self.queue.push(event.clone());
    }
}

impl Queue {
    fn push(&self, event: Event) {
        let mut waiting = self.lock();
        if is_progress(&event) {
            waiting.events.retain(|e| !is_progress(e));
        }
        if waiting.events.len() >= QUEUE {
            waiting.events.pop_front();
            waiting.lost += 1;
        }
        waiting.events.push_back(event);
        self.changed.notify_one();
    }

    /// Waits for the next event; `None` after the last one.
    fn next(&self) -> Option<Event> {
        let nothing = |w: &mut Waiting| w.events.is_empty() && !w.closed;
        let waiting = self.changed.wait_while(self.lock(), nothing);
        waiting.unwrap_or_else(PoisonError::into_inner).events.pop_front()
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// Held for a few instructions only; a panic cannot leave it half changed.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_progress(event: &Event) -> bool {
    matches!(event, Event::Progress { .. })
}

fn show(style: Style, events: &mut dyn Iterator<Item = Event>) {
    match style {
        Style::Bar => Bar::new().run(events),
        Style::Lines => lines(events),
        Style::Json => json(events),
        Style::Quiet => events.for_each(drop),
    }
}

/// A closed standard output ends the printing, not the download.
fn json(events: &mut dyn Iterator<Item = Event>) {
    while let Some(event) = events.next() {
        let Ok(line) = serde_json::to_string(&event) else { continue };
        let mut out = io::stdout().lock();
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            return events.for_each(drop);
        }
    }
}

fn lines(events: &mut dyn Iterator<Item = Event>) {
    let mut last = Instant::now();
    for event in events {
        let progress = is_progress(&event);
        if progress && last.elapsed() < LINE_EVERY {
            continue;
        }
        if progress {
            last = Instant::now();
        }
        if let Some(text) = describe(&event) {
            _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// An event in words; `None` if it is told elsewhere.
fn describe(event: &Event) -> Option<String> {
    Some(match event {
        Event::Started { url, target, total_bytes, paths, .. } => {
            let size = total_bytes.map_or("unknown length".to_owned(), size);
            format!("{url} → {target}: {size}; trying {}", paths.join(", "))
        }
        Event::Resumed { bytes } => format!("going on after {}", size(*bytes)),
        Event::Restarted { why } => format!("starting over: {why}"),
        Event::PathSampled { path, rate_bps } => format!("{path}: {}", Rate::from_bps(*rate_bps)),
        Event::Chosen { path, reason } => format!("chosen: {path} ({reason})"),
        Event::PathFailed { path, why } => format!("{path} failed: {why}"),
        Event::Progress { done_bytes, total_bytes, rate_bps, paths } => {
            let total = total_bytes.map_or(String::new(), |n| format!(" of {}", size(n)));
            let rate = Rate::from_bps(*rate_bps);
            format!("{}{total}, {rate} ({})", size(*done_bytes), rates(paths))
        }
        Event::Finished { .. } | Event::Failed { .. } => return None,
    })
}

fn size(bytes: u64) -> String {
    ByteSize::from_bytes(bytes).to_string()
}

/// The rates of the paths that carry something, `idle` if none does.
fn rates(paths: &[PathRate]) -> String {
    let busy = paths.iter().filter(|p| p.rate_bps > 0);
    let text = busy.map(|p| format!("{} {}", p.path, Rate::from_bps(p.rate_bps)));
    let text = text.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "idle".to_owned() } else { text }
}

/// A progress bar, and what is chosen above it.
struct Bar {
    bar: ProgressBar,
    chosen: String,
}

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::no_length();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {decimal_bytes} {msg}") {
            bar.set_style(style);
        }
        Self { bar, chosen: "sampling".to_owned() }
    }

    fn run(mut self, events: &mut dyn Iterator<Item = Event>) {
        events.for_each(|event| self.take(&event));
        self.bar.finish_and_clear();
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::Progress { done_bytes, rate_bps, paths, .. } => {
                self.bar.set_position(*done_bytes);
                self.bar.set_message(self.message(*rate_bps, paths));
            }
            Event::Resumed { bytes } => {
                self.bar.set_position(*bytes);
                // What was there already says nothing about the time to come.
                self.bar.reset_eta();
                self.say(event);
            }
            Event::Chosen { path, .. } => {
                self.chosen = format!("over {path}");
                self.say(event);
            }
            Event::Started { total_bytes: Some(total), .. } => {
                self.bar.set_length(*total);
                let bar = "{wide_bar} {decimal_bytes} of {decimal_total_bytes}, {eta} left\n{msg}";
                if let Ok(style) = ProgressStyle::with_template(bar) {
                    self.bar.set_style(style);
                }
                self.say(event);
            }
            _ => self.say(event),
        }
    }

    /// The total, and a line for each path.
    fn message(&self, rate_bps: u64, paths: &[PathRate]) -> String {
        let line = |p: &PathRate| format!("  {}: {}", p.path, Rate::from_bps(p.rate_bps));
        let lines: Vec<String> = paths.iter().map(line).collect();
        let total = Rate::from_bps(rate_bps);
        format!("{}: {total}\n{}", self.chosen, lines.join("\n"))
    }

    fn say(&self, event: &Event) {
        if let Some(text) = describe(event) {
            self.bar.println(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_who_reads_costs_old_events_and_never_the_last_one() {
        let progress = |done_bytes| Event::Progress {
            done_bytes,
            total_bytes: None,
            rate_bps: 0,
            paths: Vec::new(),
        };
        let queue = Queue::default();
        (0..5_000).for_each(|n| queue.push(progress(n)));
        assert_eq!(queue.lock().events.len(), 1);
        assert_eq!(queue.lock().lost, 0);
        (0..3_000).for_each(|bytes| queue.push(Event::Resumed { bytes }));
        queue.close();
        let shown: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!((shown.len(), queue.lock().lost), (QUEUE, 3_001 - QUEUE as u64));
        assert_eq!(shown.last(), Some(&Event::Resumed { bytes: 2_999 }));
    }

    #[test]
    fn progress_names_the_paths_that_carry_something() {
        let rate = |path: &str, rate_bps| PathRate { path: path.into(), rate_bps };
        let event = Event::Progress {
            done_bytes: 5_000_000,
            total_bytes: Some(40_000_000),
            rate_bps: 8_000_000,
            paths: vec![rate("direct", 8_000_000), rate("r1:1080", 0)],
        };
        let text = describe(&event).unwrap();
        assert_eq!(text, "5 MB of 40 MB, 8 Mbit/s (direct 8 Mbit/s)");
        assert_eq!(rates(&[rate("direct", 0)]), "idle");
    }
}
