//! The log of a service: one line per event, `event=closed client=10.0.0.2:5555 …`.
//!
//! A separate thread writes the lines from a bounded queue: if the log's reader is slow, lines are dropped and counted,
//! and no connection waits. The console escapes control characters, because peers choose some of the text.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

/// The most lines in the queue: the ends of a few thousand connections, 200 kB. When it is full, lines are dropped and
/// counted.
const MAX_QUEUED: usize = 2048;

/// The format of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `event=closed client=10.0.0.1:4711 up_bytes=8`.
    #[default]
    Text,
    /// One JSON object per line, with the Unix time in milliseconds first.
    Json,
}

/// An event to be logged: its name and its fields, in order.
///
/// It must never contain a token, more than the first eight digits of a key, or payload.
#[derive(Clone, Debug)]
pub struct Event {
    at: SystemTime,
    name: &'static str,
    fields: Vec<(&'static str, Value)>,
}

#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Number(u64),
}

impl Event {
    /// Creates an event with this name (`[a-z_]+`) and the present time.
    pub fn new(name: &'static str) -> Self {
        Self { at: SystemTime::now(), name, fields: Vec::new() }
    }

    /// Appends `key=value`. A value with blanks, quotes or control characters is quoted.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl fmt::Display) -> Self {
        self.fields.push((key, Value::Text(value.to_string())));
        self
    }

    /// Appends `key=value` with a value that is a number in JSON too.
    #[must_use]
    pub fn with_number(mut self, key: &'static str, value: impl TryInto<u64>) -> Self {
        self.fields.push((key, Value::Number(value.try_into().unwrap_or(u64::MAX))));
        self
    }

    /// The formatted line, without a line end.
    pub fn line(&self, format: LogFormat) -> String {
        match format {
            LogFormat::Text => self.to_string(),
            LogFormat::Json => self.json().to_string(),
        }
    }

    fn json(&self) -> serde_json::Value {
        let since = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let mut line = serde_json::Map::new();
        line.insert("unix_ms".into(), unix_ms.into());
        line.insert("event".into(), self.name.into());
        for (key, value) in &self.fields {
            line.insert(
                (*key).into(),
                match value {
                    Value::Text(text) => text.as_str().into(),
                    Value::Number(number) => (*number).into(),
                },
            );
        }
        line.into()
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
        write!(f, "event={}", self.name)?;
        self.fields.iter().try_for_each(|(key, value)| match value {
            Value::Number(number) => write!(f, " {key}={number}"),
            Value::Text(text) if !text.is_empty() && text.chars().all(plain) => {
                write!(f, " {key}={text}")
            }
            Value::Text(text) => write!(f, " {key}={text:?}"),
        })
    }
}

/// The destination of events. Cheap to clone. The writer ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Log {
    lines: SyncSender<Event>,
    dropped: Arc<AtomicU64>,
    /// Whether the lines are JSON.
    is_json: Arc<AtomicBool>,
}

impl Log {
    /// Creates a log whose events are received from the queue, for tests and other formats.
    pub fn to_queue() -> (Self, Receiver<Event>) {
        let (lines, queue) = sync_channel(MAX_QUEUED);
        (Self { lines, dropped: Arc::default(), is_json: Arc::default() }, queue)
    }

    /// Creates a log that is written to standard error as text; see [`Log::to_stderr_as`].
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn to_stderr() -> std::io::Result<(Self, thread::JoinHandle<()>)> {
        Self::to_stderr_as(LogFormat::Text)
    }

    /// Creates a log that is written to standard error. To have the last lines written, drop every clone and then join
    /// the handle.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn to_stderr_as(format: LogFormat) -> std::io::Result<(Self, thread::JoinHandle<()>)> {
        let (log, queue) = Self::to_queue();
        log.set_format(format);
        let (dropped, is_json) = (Arc::clone(&log.dropped), Arc::clone(&log.is_json));
        let writer = thread::Builder::new().name("relay-log".into()).spawn(move || {
            for event in queue {
                let format = match is_json.load(Ordering::Relaxed) {
                    true => LogFormat::Json,
                    false => LogFormat::Text,
                };
                write_line(&event, format);
                let lost = dropped.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    let dropped = Event::new("log_dropped").with_number("lines", lost);
                    write_line(&dropped, format);
                }
            }
        })?;
        Ok((log, writer))
    }

    /// Changes the format of lines that are not written yet.
    pub fn set_format(&self, format: LogFormat) {
        self.is_json.store(format == LogFormat::Json, Ordering::Relaxed);
    }

    /// Queues an event; never blocks.
    pub fn put(&self, event: Event) {
        if self.lines.try_send(event).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes each line with one write, so that lines of several processes do not mix.
fn write_line(event: &Event, format: LogFormat) {
    thalweg_console::note!("{}", event.line(format));
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
    fn json_keeps_numbers_and_text_apart() {
        let event = Event::new("closed").with("peer", "123").with_number("up_bytes", 8u64);
        let line: serde_json::Value = serde_json::from_str(&event.line(LogFormat::Json)).unwrap();
        assert_eq!((&line["event"], &line["peer"]), (&"closed".into(), &"123".into()));
        assert_eq!(line["up_bytes"], 8);
        assert!(line["unix_ms"].is_u64());
        assert_eq!(event.to_string(), "event=closed peer=123 up_bytes=8");
    }

    #[test]
    fn a_log_that_nobody_reads_drops_lines_and_counts_them() {
        let (log, queue) = Log::to_queue();
        for i in 0..MAX_QUEUED + 3 {
            log.put(Event::new("e").with_number("i", i));
        }
        assert_eq!(log.dropped.load(Ordering::Relaxed), 3);
        drop(log);
        assert_eq!(queue.iter().count(), MAX_QUEUED);
    }
}
