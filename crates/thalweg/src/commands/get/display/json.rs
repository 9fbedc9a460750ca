//! Events as JSON on standard output, one object per line.

use super::{Note, Queue, messages, say};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, time::Instant};
use thalweg_base::job::Event;
use thalweg_console::say_line;

/// Prints the events until the queue is closed. A closed standard output ends the printing, not the downloads.
pub fn run(queue: &Queue) {
    let mut formatter = JsonFormatter { started: Instant::now(), ..JsonFormatter::new() };
    let mut open = true;
    let mut write = |line: Value| open = open && say_line(line).is_ok();
    while let Some(note) = queue.next() {
        messages::failure(&note, formatter.count > 1).iter().for_each(|line| say(line));
        formatter.format_note(note).map(&mut write);
    }
    formatter.summary().map(&mut write);
}

/// Converts events to JSON objects.
pub struct JsonFormatter {
    started: Instant,
    count: usize,
    urls: BTreeMap<usize, String>,
    done: usize,
    failed: usize,
    bytes: u64,
    fetched: u64,
}

impl Default for JsonFormatter {
    fn default() -> Self {
        Self::new()
    }
}

impl JsonFormatter {
    fn new() -> Self {
        let urls = BTreeMap::new();
        let started = Instant::now();
        Self { started, count: 0, urls, done: 0, failed: 0, bytes: 0, fetched: 0 }
    }

    /// A note as an object; `None` if it is not shown.
    pub fn format_note(&mut self, note: Note) -> Option<Value> {
        match note {
            Note::Text(text) => Some(json!({ "event": "note", "text": text })),
            Note::Planned { count } => {
                self.count = count;
                None
            }
            Note::Begun { item, url } => {
                self.urls.insert(item, url);
                None
            }
            Note::Relays { item, choice, .. } => Some(self.numbered(item, choice.json())),
            Note::Event { item, event } => {
                self.update(&event);
                let line = self.numbered(item, serde_json::to_value(&event).ok()?);
                if matches!(event, Event::Finished { .. }) {
                    self.urls.remove(&item);
                }
                Some(line)
            }
            Note::Verdict { item, url, verdict, .. } => {
                let mut line = json!({ "event": "verdict" });
                if let (Some(line), Value::Object(fields)) =
                    (line.as_object_mut(), serde_json::to_value(&verdict).ok()?)
                {
                    line.extend(fields);
                }
                self.urls.insert(item, url);
                let line = self.numbered(item, line);
                self.urls.remove(&item);
                Some(line)
            }
            Note::Again { item, why, wait, attempt, of, .. } => {
                let line = json!({
                    "event": "retrying", "why": why, "after_seconds": wait.as_secs_f64(),
                    "attempt": attempt, "of": of,
                });
                Some(self.numbered(item, line))
            }
            Note::Failed { item, url, why, code, kept, .. } => {
                self.failed += 1;
                self.urls.insert(item, url);
                let line = json!({
                    "event": "failed", "why": why, "kept_bytes": kept, "exit_code": code as u8,
                });
                let line = self.numbered(item, line);
                self.urls.remove(&item);
                Some(line)
            }
        }
    }

    fn update(&mut self, event: &Event) {
        if let Event::Finished { bytes, fetched_bytes, .. } = event {
            self.done += 1;
            self.bytes += bytes;
            self.fetched += fetched_bytes;
        }
    }

    /// Adds the number and the URL of the download, if there are several.
    fn numbered(&self, item: usize, mut line: Value) -> Value {
        if self.count > 1
            && let Some(fields) = line.as_object_mut()
        {
            let url = self.urls.get(&item).cloned().unwrap_or_default();
            fields.extend(Map::from_iter([
                ("download".to_owned(), json!(item)),
                ("url".to_owned(), fields.get("url").cloned().unwrap_or(json!(url))),
            ]));
        }
        line
    }

    /// The result of several downloads.
    fn summary(&self) -> Option<Value> {
        let seconds = self.started.elapsed().as_secs_f64();
        let rate = (self.fetched as f64 * 8.0 / seconds.max(1e-9)).round() as u64;
        (self.count > 1).then(|| {
            json!({
                "event": "summary", "downloads": self.count, "finished": self.done,
                "failed": self.failed, "bytes": self.bytes, "fetched_bytes": self.fetched,
                "seconds": seconds, "rate_bps": rate,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::get::exit::Code;
    use thalweg_base::verdict::{Bound, Verdict};

    #[test]
    fn downloads_are_numbered_only_if_there_are_several() {
        let resumed = || Note::Event { item: 1, event: Event::Resumed { bytes: 5 } };
        let mut formatter = JsonFormatter::new();
        let alone = formatter.format_note(resumed()).unwrap().to_string();
        assert_eq!(alone, r#"{"event":"resumed","bytes":5}"#);
        assert_eq!(formatter.summary(), None);
        formatter.format_note(Note::Planned { count: 2 });
        formatter.format_note(Note::Begun { item: 1, url: "http://a/b".into() });
        let line = formatter.format_note(resumed()).unwrap().to_string();
        let wanted = r#"{"event":"resumed","bytes":5,"download":1,"url":"http://a/b"}"#;
        assert_eq!(line, wanted);
        let failed = Note::Failed {
            item: 0,
            url: "x".into(),
            why: "y".into(),
            code: Code::Refused,
            kept: 7,
            hints: vec![],
        };
        let line = formatter.format_note(failed).unwrap();
        assert_eq!((&line["exit_code"], &line["kept_bytes"]), (&json!(3), &json!(7)));
        assert_eq!(formatter.summary().unwrap()["failed"], 1);
        let verdict = Verdict { bound: Bound::Disk, text: "It was.".into(), evidence: vec![] };
        let note = Note::Verdict { item: 1, url: "http://a/b".into(), verdict, aloud: false };
        let line = formatter.format_note(note).unwrap().to_string();
        let wanted = r#"{"event":"verdict","bound":"disk","text":"It was.","evidence":[],"download":1,"url":"http://a/b"}"#;
        assert_eq!(line, wanted);
    }
}
