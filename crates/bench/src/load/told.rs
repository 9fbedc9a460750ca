//! What `thalweg cast --json` tells, read strictly: an event that is not known, a field that is missing or a line that
//! is no event is an error, lest a renamed field be measured as nothing.

use anyhow::Context as _;
use serde::Deserialize;

/// An event, as far as measurements need it; docs/cast.md has all of them.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Told {
    /// The object is described.
    Started {
        /// How many bytes.
        bytes: u64,
    },
    /// Who is to get it from whom.
    Planned {
        /// By receiver.
        receivers: Vec<Planned>,
    },
    /// A receiver left a parent.
    ParentLeft {
        /// The receiver.
        receiver: String,
        /// The parent.
        parent: String,
        /// In words.
        why: String,
    },
    /// How far all are; once a second.
    Progress {
        /// s since the first offer.
        seconds: f64,
        /// Bytes of symbols that the source has sent.
        served_bytes: f64,
        /// The most that waited in its own ring at once, B.
        ring_peak_bytes: f64,
        /// By receiver.
        receivers: Vec<Progress>,
        /// By relay; a cast without any does not tell them.
        #[serde(default)]
        relays: Vec<Relay>,
    },
    /// A receiver has it.
    Received(Came),
    /// A receiver does not take it.
    Refused {
        /// Who.
        receiver: String,
        /// In words.
        why: String,
        /// It is tried again.
        again: bool,
    },
    /// The object changed.
    Broken {
        /// In words.
        why: String,
    },
    /// Nothing was begun.
    Failed {
        /// In words.
        why: String,
    },
    /// The end.
    Ended(Ended),
    /// Not counted.
    PassedOver {},
    /// Not counted.
    SpecialBits {},
    /// Not counted.
    OwnersIgnored {},
    /// Not counted.
    LinksRefused {},
    /// Not counted.
    FileFailed {},
    /// Not counted.
    MoreFailed {},
    /// Not counted.
    MorePassedOver {},
    /// Not counted.
    WouldTake {},
    /// Not counted.
    Hashing {},
    /// Not counted.
    Accepted {},
    /// Not counted.
    Unreached {},
    /// Not counted.
    Note {},
}

/// A receiver's place in the plan.
#[derive(Debug, Deserialize)]
pub struct Planned {
    /// Who.
    pub name: String,
    /// The best first.
    pub parents: Vec<String>,
}

/// How far a receiver is.
#[derive(Debug, Deserialize)]
pub struct Progress {
    /// Who.
    pub name: String,
    /// Bytes of the object.
    pub held_bytes: f64,
    /// Over the last second, bit/s.
    pub rate_bps: f64,
    /// Symbols that rings there could not hand on.
    pub missed_symbols: f64,
    /// The most that waited for its children at once, B.
    pub ring_peak_bytes: f64,
    /// Those of now.
    pub parents: Vec<Parent>,
}

/// What a parent gives.
#[derive(Debug, Deserialize)]
pub struct Parent {
    /// Who.
    pub name: String,
    /// Over the last second, bit/s.
    pub rate_bps: u64,
}

/// What a node does that keeps nothing.
#[derive(Debug, Deserialize)]
pub struct Relay {
    /// The most that waited for its children at once, B.
    pub ring_peak_bytes: f64,
}

/// The end of one receiver.
#[derive(Debug, Deserialize)]
pub struct Came {
    /// Who.
    pub receiver: String,
    /// Bytes that came.
    pub received_bytes: f64,
    /// Of them of no use.
    pub duplicate_bytes: f64,
    /// New bytes, by parent.
    pub parents: Vec<Share>,
    /// Its own span.
    pub seconds: f64,
    /// New bytes over it, bit/s.
    pub rate_bps: f64,
    /// From the first offer until the source knew.
    pub after_seconds: f64,
}

/// What came from a parent.
#[derive(Debug, Deserialize)]
pub struct Share {
    /// Who.
    pub name: String,
    /// New bytes.
    pub bytes: f64,
}

/// The end of the cast.
#[derive(Debug, Deserialize)]
pub struct Ended {
    /// How, in a word.
    pub outcome: String,
    /// Of the object.
    pub bytes: f64,
    /// Receivers that have it.
    pub complete: f64,
    /// From the first offer on.
    pub seconds: f64,
    /// Bytes of symbols that the source has sent.
    pub served_bytes: f64,
}

/// Reads a line.
///
/// # Errors
/// When it is no event, or one without a field that is named here.
pub fn read(line: &str) -> anyhow::Result<Told> {
    serde_json::from_str(line).with_context(|| format!("the cast told something else: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use thalweg_cast::source::{
        Event, Outcome, ParentBytes, Planned as Place, ReceiverProgress, RelayProgress, Standing,
        Totals,
    };
    use thalweg_wire::{cast::Fault, mesh::Name};

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn progress() -> Event {
        let one = ReceiverProgress {
            name: name("a"),
            state: Standing::Receiving,
            held_bytes: 5,
            rate_bps: 6,
            min_hop_bps: None,
            left_seconds: None,
            missed_symbols: 7,
            ring_peak_bytes: 8,
            // What is in it the crate does not name outside; the words below have one.
            parents: vec![],
        };
        let relay = RelayProgress { name: name("r"), missed_symbols: 0, ring_peak_bytes: 11 };
        Event::Progress {
            seconds: 1.5,
            total_bytes: 9,
            served_bytes: 2,
            ring_peak_bytes: 3,
            receivers: vec![one],
            relays: vec![relay],
        }
    }

    fn received() -> Event {
        Event::Received {
            receiver: name("a"),
            already: false,
            received_bytes: 1,
            duplicate_bytes: 2,
            served_bytes: 3,
            parents: vec![ParentBytes { name: name("s"), bytes: 4 }],
            seconds: 5.0,
            rate_bps: 6,
            after_seconds: 7.0,
        }
    }

    /// One of each that the product can tell; a new one does not compile here until it is thought of.
    fn all() -> Vec<Event> {
        let (receiver, why) = (name("a"), String::new());
        let started = Event::Started {
            cast: String::new(),
            name: String::new(),
            object: String::new(),
            bytes: 1,
            symbol_bytes: 1,
            block_symbols: 1,
            receivers: vec![],
        };
        let place = Place {
            name: name("a"),
            parents: vec![name("s")],
            min_hop_bps: None,
            expected_bps: None,
            predicted: None,
        };
        let (parent, fault) = (name("s"), Fault::Slow);
        let all = vec![
            Event::PassedOver { path: String::new() },
            Event::MorePassedOver { count: 1 },
            Event::SpecialBits { count: 1 },
            Event::OwnersIgnored { receiver: name("b"), count: 1 },
            Event::LinksRefused { receiver: name("b"), count: 1, first: String::new() },
            Event::FileFailed { file: String::new(), why: String::new() },
            Event::MoreFailed { count: 1 },
            Event::WouldTake { receiver: receiver.clone(), uncompared: false },
            Event::Hashing { done_bytes: 0, total_bytes: 0 },
            started,
            Event::Planned { receivers: vec![place] },
            Event::Accepted { receiver: receiver.clone(), held_bytes: 0 },
            Event::Unreached { receiver: receiver.clone(), why: why.clone() },
            Event::Refused { receiver: receiver.clone(), why: why.clone(), again: false },
            Event::ParentLeft { receiver, parent, fault, why: why.clone() },
            progress(),
            received(),
            Event::Broken { why },
            Event::Note { text: String::new() },
            Event::SpecialBits { count: 1 },
            Event::OwnersIgnored { receiver: name("b"), count: 1 },
            Event::Ended(Totals { outcome: Outcome::Complete, ..Totals::default() }),
        ];
        for event in &all {
            match event {
                Event::PassedOver { .. } | Event::Hashing { .. } | Event::Started { .. } => {}
                Event::Planned { .. } | Event::Accepted { .. } | Event::Unreached { .. } => {}
                Event::Refused { .. } | Event::ParentLeft { .. } | Event::Progress { .. } => {}
                Event::Received { .. } | Event::Broken { .. } | Event::Note { .. } => {}
                Event::SpecialBits { .. } | Event::OwnersIgnored { .. } => {}
                Event::LinksRefused { .. }
                | Event::FileFailed { .. }
                | Event::MoreFailed { .. } => {}
                Event::MorePassedOver { .. } | Event::WouldTake { .. } | Event::Ended(_) => {}
            }
        }
        all
    }

    #[test]
    fn all_that_the_product_tells_is_read() {
        for event in all() {
            let line = serde_json::to_string(&event).unwrap();
            read(&line).unwrap();
        }
        read(r#"{"event":"failed","why":"x","exit_code":6}"#).unwrap();
    }

    /// Whatever is read here: without it, or under another name, the line is an error.
    #[test]
    fn a_field_that_is_renamed_is_an_error() {
        let told = |event: &Event| serde_json::to_value(event).unwrap();
        let (mut progress, received) = (told(&progress()), told(&received()));
        progress["receivers"][0]["parents"] = json!([{"name": "s", "rate_bps": 9, "bytes": 10}]);
        let ended = told(&Event::Ended(Totals::default()));
        let cases: [(&Value, &str, &[&str]); 7] = [
            (&progress, "", &["seconds", "served_bytes", "ring_peak_bytes", "receivers"]),
            (
                &progress,
                "/receivers/0",
                &["name", "held_bytes", "rate_bps", "missed_symbols", "ring_peak_bytes", "parents"],
            ),
            (&progress, "/receivers/0/parents/0", &["name", "rate_bps"]),
            (&progress, "/relays/0", &["ring_peak_bytes"]),
            (
                &received,
                "",
                &[
                    "receiver",
                    "received_bytes",
                    "duplicate_bytes",
                    "parents",
                    "seconds",
                    "rate_bps",
                    "after_seconds",
                ],
            ),
            (&received, "/parents/0", &["name", "bytes"]),
            (&ended, "", &["outcome", "bytes", "complete", "seconds", "served_bytes"]),
        ];
        for (event, at, fields) in cases {
            for field in fields {
                let mut renamed = event.clone();
                let object = renamed.pointer_mut(at).and_then(Value::as_object_mut).unwrap();
                let value = object.remove(*field).unwrap();
                object.insert(format!("{field}_x"), value);
                assert!(read(&renamed.to_string()).is_err(), "{at}/{field}");
            }
        }
    }

    #[test]
    fn what_is_no_event_is_an_error() {
        assert!(read("noise").is_err() && read("").is_err());
        assert!(read(&json!({"event": "surprise"}).to_string()).is_err());
    }
}
