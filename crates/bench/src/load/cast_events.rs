//! Parses the events of `thalweg cast --json` strictly: an unknown event, a missing field or a line that is no event is
//! an error, so that a renamed field is not measured as zero.

use anyhow::Context as _;
use serde::Deserialize;

/// An event with the fields that measurements need; docs/cast.md describes all of them.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CastEvent {
    /// The object is known.
    Started {
        /// Its size.
        bytes: u64,
    },
    Planned {
        /// The receivers with their parents.
        receivers: Vec<Planned>,
    },
    /// A receiver left a parent.
    ParentLeft {
        receiver: String,
        parent: String,
        /// The reason.
        why: String,
    },
    /// The progress of all nodes, once per second.
    Progress {
        /// Time since the first offer, s.
        seconds: f64,
        /// Bytes of symbols that the source has sent.
        served_bytes: f64,
        /// The most bytes that waited in the source's ring at once.
        ring_peak_bytes: f64,
        receivers: Vec<Progress>,
        /// The relays' progress; missing in a cast without relays.
        #[serde(default)]
        relays: Vec<Relay>,
    },
    /// A receiver has the object.
    Received(ReceiverEnd),
    /// A receiver refuses the object.
    Refused {
        receiver: String,
        /// The reason.
        why: String,
        /// Whether the source tries again.
        again: bool,
    },
    /// The object changed during the cast.
    Broken {
        /// The reason.
        why: String,
    },
    /// The cast failed before it began.
    Failed {
        /// The reason.
        why: String,
    },
    /// The end of the cast.
    Ended(CastEnd),
    /// This event and the following ones are not used by measurements.
    PassedOver {},
    SpecialBits {},
    OwnersIgnored {},
    LinksRefused {},
    FileFailed {},
    MoreFailed {},
    MorePassedOver {},
    WouldTake {},
    Hashing {},
    Accepted {},
    Unreached {},
    Note {},
    Verdict {},
}

/// A receiver in the plan.
#[derive(Debug, Deserialize)]
pub struct Planned {
    pub name: String,
    /// Its parents, the best first.
    pub parents: Vec<String>,
}

/// The progress of a receiver.
#[derive(Debug, Deserialize)]
pub struct Progress {
    pub name: String,
    /// Bytes of the object that it has.
    pub held_bytes: f64,
    /// Its rate over the last second, bit/s.
    pub rate_bps: f64,
    /// Symbols that its parents' rings no longer held.
    pub missed_symbols: f64,
    /// The most bytes that waited in its ring for its children at once.
    pub ring_peak_bytes: f64,
    pub parents: Vec<Parent>,
}

/// The contribution of a parent.
#[derive(Debug, Deserialize)]
pub struct Parent {
    pub name: String,
    /// Its rate over the last second, bit/s.
    pub rate_bps: u64,
}

/// The progress of a node that only forwards.
#[derive(Debug, Deserialize)]
pub struct Relay {
    /// The most bytes that waited in its ring for its children at once.
    pub ring_peak_bytes: f64,
}

/// The end of one receiver.
#[derive(Debug, Deserialize)]
pub struct ReceiverEnd {
    pub receiver: String,
    pub received_bytes: f64,
    /// Received bytes that were of no use.
    pub duplicate_bytes: f64,
    /// New bytes by parent.
    pub parents: Vec<Share>,
    /// The receiver's own duration, s.
    pub seconds: f64,
    /// New bytes over this duration, bit/s.
    pub rate_bps: f64,
    /// Time from the first offer until the source knew, s.
    pub after_seconds: f64,
}

/// The bytes from one parent.
#[derive(Debug, Deserialize)]
pub struct Share {
    pub name: String,
    /// New bytes.
    pub bytes: f64,
}

/// The end of the cast.
#[derive(Debug, Deserialize)]
pub struct CastEnd {
    /// The outcome, one word.
    pub outcome: String,
    /// The size of the object, bytes.
    pub bytes: f64,
    /// The number of receivers that have it.
    pub complete: f64,
    /// Time since the first offer, s.
    pub seconds: f64,
    /// Bytes of symbols that the source has sent.
    pub served_bytes: f64,
}

/// Parses a line.
///
/// # Errors
/// When it is not an event or lacks a field that is used here.
pub fn read(line: &str) -> anyhow::Result<CastEvent> {
    serde_json::from_str(line).with_context(|| format!("unexpected output of the cast: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use thalweg_base::verdict::{Bound, Verdict};
    use thalweg_cast::source::{
        Event, Outcome, ParentBytes, PlannedReceiver as Place, ReceiverProgress, ReceiverState,
        RelayProgress, Totals,
    };
    use thalweg_wire::{cast::Fault, mesh::Name};

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn progress() -> Event {
        let one = ReceiverProgress {
            name: name("a"),
            state: ReceiverState::Receiving,
            held_bytes: 5,
            rate_bps: 6,
            min_hop_bps: None,
            left_seconds: None,
            missed_symbols: 7,
            ring_peak_bytes: 8,
            // The crate does not export the element type; a test below has such an element as JSON.
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

    /// One event of each kind that the product can emit. The match does not compile until a new kind is considered
    /// here.
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
            Event::Verdict(Verdict {
                bound: Bound::Receiver,
                text: String::new(),
                evidence: Vec::new(),
            }),
            Event::Ended(Totals { outcome: Outcome::Complete, ..Totals::default() }),
        ];
        for event in &all {
            match event {
                Event::PassedOver { .. } | Event::Hashing { .. } | Event::Started { .. } => {}
                Event::Planned { .. } | Event::Accepted { .. } | Event::Unreached { .. } => {}
                Event::Refused { .. } | Event::ParentLeft { .. } | Event::Progress { .. } => {}
                Event::Received { .. } | Event::Broken { .. } | Event::Note { .. } => {}
                Event::SpecialBits { .. } | Event::OwnersIgnored { .. } => {}
                Event::Verdict(_) => {}
                Event::LinksRefused { .. }
                | Event::FileFailed { .. }
                | Event::MoreFailed { .. } => {}
                Event::MorePassedOver { .. } | Event::WouldTake { .. } | Event::Ended(_) => {}
            }
        }
        all
    }

    #[test]
    fn every_event_of_the_product_is_parsed() {
        for event in all() {
            let line = serde_json::to_string(&event).unwrap();
            read(&line).unwrap();
        }
        read(r#"{"event":"failed","why":"x","exit_code":6}"#).unwrap();
    }

    /// Each field that is parsed here: without it, or with another name, the line is an error.
    #[test]
    fn a_renamed_field_is_an_error() {
        let to_json = |event: &Event| serde_json::to_value(event).unwrap();
        let (mut progress, received) = (to_json(&progress()), to_json(&received()));
        progress["receivers"][0]["parents"] = json!([{"name": "s", "rate_bps": 9, "bytes": 10}]);
        let ended = to_json(&Event::Ended(Totals::default()));
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
    fn a_line_that_is_not_an_event_is_an_error() {
        assert!(read("noise").is_err() && read("").is_err());
        assert!(read(&json!({"event": "surprise"}).to_string()).is_err());
    }
}
