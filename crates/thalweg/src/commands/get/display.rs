//! Shows a download's events: as a bar, as lines, or as JSON.
//!
//! A thread of its own does it, because terminals and pipes may be slow and a
//! download must not wait for them.

use indicatif::{ProgressBar, ProgressStyle};
use std::{
    io::{self, Write},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::JoinHandle,
    time::{Duration, Instant},
};
use thalweg_node::job::{Event, EventSink, PathRate};
use thalweg_units::{ByteSize, Rate};

/// Events that wait to be shown. Progress is dropped when it is full; of the
/// others there are a few per path, so these always fit.
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
    queue: SyncSender<Event>,
    thread: JoinHandle<()>,
}

impl Display {
    /// Starts the thread.
    pub(super) fn start(style: Style) -> io::Result<Self> {
        let (queue, events) = sync_channel(QUEUE);
        let thread = std::thread::Builder::new().name("display".into());
        Ok(Self { queue, thread: thread.spawn(move || show(style, &events))? })
    }

    /// Waits until all is shown.
    pub(super) fn finish(self) {
        drop(self.queue);
        // If it panicked, that was printed.
        _ = self.thread.join();
    }
}

impl EventSink for Display {
    fn event(&self, event: &Event) {
        match self.queue.try_send(event.clone()) {
            Err(TrySendError::Full(event)) if !matches!(event, Event::Progress { .. }) => {
                _ = self.queue.send(event);
            }
            _ => {}
        }
    }
}

fn show(style: Style, events: &Receiver<Event>) {
    match style {
        Style::Bar => Bar::new().run(events),
        Style::Lines => lines(events),
        Style::Json => json(events),
        Style::Quiet => events.iter().for_each(drop),
    }
}

/// A closed standard output ends the printing, not the download.
fn json(events: &Receiver<Event>) {
    for event in events {
        let Ok(line) = serde_json::to_string(&event) else { continue };
        let mut out = io::stdout().lock();
        if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
            return events.iter().for_each(drop);
        }
    }
}

fn lines(events: &Receiver<Event>) {
    let mut last = Instant::now();
    for event in events {
        let progress = matches!(event, Event::Progress { .. });
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

    fn run(mut self, events: &Receiver<Event>) {
        events.iter().for_each(|event| self.take(&event));
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
