//! What is known of streams and legs, for reports.

use crate::{ByClass, Quality, Way};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::serde_duration;
use thalweg_wire::{
    mesh::Name,
    stream::leg::{CLASSES, Level, Report, Why},
};

/// A stream at this node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamStatus {
    /// Its name.
    pub name: Option<Name>,
    /// The publisher's node.
    pub origin: Option<Name>,
    /// Who publishes it here; none: it is not published here, or the publisher is gone at present.
    pub published_by: Option<String>,
    /// Where it is taken from; none: it is published here, or the way is broken at present.
    pub parent: Option<Way>,
    /// The publisher's run.
    pub run: u64,
    /// The number of its next frame.
    pub next: u64,
    /// Why it has ended; none: it goes on.
    pub ended: Option<String>,
    /// How long the publisher says that frames are of use.
    pub latency_ms: u32,
    /// Labels of its tracks.
    pub tracks: Vec<String>,
    /// Bit/s by track and class, tables first.
    pub rates: Vec<[u64; CLASSES]>,
    /// Bytes held of it.
    pub held_bytes: u64,
    /// Frames that came from the parent, by class.
    pub came: ByClass,
    /// Frames that did not come here, by reason.
    pub missing: BTreeMap<Why, u64>,
    /// The median age of the last second's frames as they came, microseconds.
    pub age_us: u32,
    /// The oldest of them.
    pub worst_us: u32,
    /// Who takes it.
    pub legs: Vec<LegStatus>,
}

/// Who takes a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Taker {
    /// A program of this host.
    #[default]
    Local,
    /// A member's node.
    Member,
}

/// A leg on which this node is the parent.
#[derive(Clone, Debug, Serialize)]
pub struct LegStatus {
    /// The member's name; a program's connection by its number.
    pub to: String,
    /// What it is.
    pub taker: Taker,
    /// What it has asked for.
    pub wants: Quality,
    /// What it gets.
    pub gets: Quality,
    /// Why not more, in words; empty: it gets all that it asked for.
    pub why: String,
    /// The estimate that the oracle's word rests on, bit/s, and its age then, s.
    pub estimate: Option<(f64, f64)>,
    /// How old frames may be.
    #[serde(with = "serde_duration")]
    pub latency: Duration,
    /// Of the last second: bits of the frames of its quality, sent or not.
    pub wanted_bps: u64,
    /// Of the last second: bits that were sent.
    pub sent_bps: u64,
    /// The share of the last second in which something waited for the leg.
    pub busy: f64,
    /// Whether frames had no room or were late in the last second.
    pub is_limited: bool,
    /// What the leg sends when it is kept busy, bit/s; none: it has not been the limit of late.
    pub limit_bps: Option<u64>,
    /// The age of the oldest frame that waited, microseconds.
    pub queue_us: u32,
    /// Bytes that wait.
    pub queue_bytes: u64,
    /// Frames sent, by class, since the leg began.
    pub sent: ByClass,
    /// Frames left out, by reason and class, since the leg began.
    pub dropped: BTreeMap<Why, ByClass>,
    /// The kernel's smoothed round trip, microseconds; none: not a TCP connection.
    pub rtt_us: Option<u64>,
    /// Segments sent again.
    pub retransmitted: u32,
    /// What the child last said.
    #[serde(skip)]
    pub heard: Report,
    /// The median age of frames at the child, microseconds.
    pub child_age_us: u32,
    /// Whether it rides in probe trains where there are any.
    pub rides: bool,
}

impl LegStatus {
    /// Of a leg that has just begun.
    pub fn new(to: String, taker: Taker, wants: Quality, latency: Duration) -> Self {
        Self {
            to,
            taker,
            wants,
            gets: wants,
            why: String::new(),
            estimate: None,
            latency,
            wanted_bps: 0,
            sent_bps: 0,
            busy: 0.0,
            is_limited: false,
            limit_bps: None,
            queue_us: 0,
            queue_bytes: 0,
            sent: ByClass::default(),
            dropped: BTreeMap::new(),
            rtt_us: None,
            retransmitted: 0,
            heard: Report::default(),
            child_age_us: 0,
            rides: false,
        }
    }
}

impl Serialize for Quality {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Both {
            track: Option<u8>,
            level: Level,
        }
        Both { track: self.track, level: self.level }.serialize(to)
    }
}
