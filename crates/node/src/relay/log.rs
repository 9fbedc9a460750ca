//! The relay's log: one line per event, `event=closed client=10.0.0.2:5555 …`.
//!
//! A thread of its own writes them, behind a bounded queue: when whoever reads
//! the log is slow, lines are dropped and counted, and no connection waits.

use std::{
    fmt::{self, Write as _},
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

/// Lines that may wait for the writer: a burst of a few thousand connections' ends, 200 kB.
const QUEUE: usize = 2048;

/// A line in the making: an event's name and its fields, in order.
#[derive(Clone, Debug)]
pub struct Event(String);

impl Event {
    /// An event with this name (`[a-z_]+`).
    pub fn new(name: &str) -> Self {
        Self(format!("event={name}"))
    }

    /// Appends `key=value`; a value with blanks, quotes or control characters is quoted.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Self {
        let value = value.to_string();
        let plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
        // Writing to a String cannot fail.
        _ = match !value.is_empty() && value.chars().all(plain) {
            true => write!(self.0, " {key}={value}"),
            false => write!(self.0, " {key}={value:?}"),
        };
        self
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where events go; cheap to clone. The writer ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Log {
    lines: SyncSender<Event>,
    dropped: Arc<AtomicU64>,
}

impl Log {
    /// A log whose events whoever holds the receiver takes, for tests and other formats.
    pub fn to_queue() -> (Self, Receiver<Event>) {
        let (lines, queue) = sync_channel(QUEUE);
        (Self { lines, dropped: Arc::default() }, queue)
    }

    /// A log that is written to standard error; join the handle after dropping every
    /// clone to have the last lines written.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn to_stderr() -> std::io::Result<(Self, thread::JoinHandle<()>)> {
        let (log, queue) = Self::to_queue();
        let dropped = Arc::clone(&log.dropped);
        let writer = thread::Builder::new().name("relay-log".into()).spawn(move || {
            for event in queue {
                write_line(&event);
                let lost = dropped.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    write_line(&Event::new("log_dropped").with("lines", lost));
                }
            }
        })?;
        Ok((log, writer))
    }

    /// Queues an event; never blocks.
    pub fn put(&self, event: Event) {
        if self.lines.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One write per line, so that lines of several processes do not mix.
fn write_line(event: &Event) {
    // Nobody is left to tell when standard error is gone.
    _ = std::io::stderr().write_all(format!("{event}\n").as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_on_their_line_and_in_their_field() {
        let event = Event::new("closed").with("to", "a.example:80").with("why", "a b\n\"c\"");
        assert_eq!(event.to_string(), r#"event=closed to=a.example:80 why="a b\n\"c\"""#);
        assert_eq!(Event::new("e").with("k", "").to_string(), r#"event=e k="""#);
    }

    #[test]
    fn a_log_that_nobody_reads_drops_lines_and_counts_them() {
        let (log, queue) = Log::to_queue();
        for i in 0..QUEUE + 3 {
            log.put(Event::new("e").with("i", i));
        }
        assert_eq!(log.dropped.load(Ordering::Relaxed), 3);
        drop(log);
        assert_eq!(queue.iter().count(), QUEUE);
    }
}
