//! The status of streams and legs, for reports.

use crate::{ByClass, ParentRoute, Quality};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::serde_duration;
use thalweg_wire::{
    mesh::Name,
    stream::leg::{CLASSES, DropReason, Level, ReceptionReport},
};

/// A stream at this node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamStatus {
    pub name: Option<Name>,
    /// The publisher's node.
    pub origin: Option<Name>,
    /// Its publisher here; `None` if it is not published here or its publisher is absent.
    pub published_by: Option<String>,
    /// The route to its parent; `None` if it is published here or its parent is lost.
    pub parent: Option<ParentRoute>,
    /// The publisher's run.
    pub run: u64,
    /// The number of its next frame.
    pub next: u64,
    /// Why it has ended; `None` if it has not.
    pub ended: Option<String>,
    /// The publisher's latency.
    pub latency_ms: u32,
    /// The labels of its tracks.
    pub tracks: Vec<String>,
    /// The rates by track and class, tables first, bit/s.
    pub rates: Vec<[u64; CLASSES]>,
    /// The bytes in its ring.
    pub held_bytes: u64,
    /// The highest level that the parent sends; `None` if it is published here or the parent has not reported it.
    pub level: Option<Level>,
    /// Frames received from the parent, by class.
    pub came: ByClass,
    /// Frames lost before this node, by reason.
    pub missing: BTreeMap<DropReason, u64>,
    /// The median age of the last second's frames on arrival, microseconds.
    pub age_us: u32,
    /// The maximum age of the last second's frames on arrival, microseconds.
    pub worst_us: u32,
    /// Whether this node receives all renditions, so that it chooses one for each leg.
    #[serde(skip)]
    pub has_all_renditions: bool,
    /// The legs to its subscribers.
    pub legs: Vec<LegStatus>,
}

/// The kind of a leg's child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChildKind {
    /// A program of this host.
    #[default]
    Local,
    /// A member's node.
    Member,
}

/// A leg on which this node is the parent.
#[derive(Clone, Debug, Serialize)]
pub struct LegStatus {
    /// The member's name, or the number of a program's connection.
    pub to: String,
    /// The kind of the child.
    pub taker: ChildKind,
    /// The quality that the child requests.
    pub wants: Quality,
    /// The renditions that the child requests; several: one of them at a time; empty: all at once.
    pub tracks: Vec<u8>,
    /// The quality that the leg sends.
    pub gets: Quality,
    /// Why it gets less, in words; empty if it gets all that it requests.
    pub why: String,
    /// The estimate behind the plan, bit/s, and its age at that time, s.
    pub estimate: Option<(f64, f64)>,
    /// The maximum age of frames.
    #[serde(with = "serde_duration")]
    pub latency: Duration,
    /// The rate of all frames of its quality in the last second, sent or not.
    pub wanted_bps: u64,
    /// The rate sent in the last second.
    pub sent_bps: u64,
    /// The share of the last second in which the leg had something to send.
    pub busy: f64,
    /// Whether the leg was too slow in the last second.
    pub is_limited: bool,
    /// The rate that the leg achieves while busy, bit/s; `None` if it has not been the bottleneck recently.
    pub limit_bps: Option<u64>,
    /// The age of the oldest frame in the queue, microseconds.
    pub queue_us: u32,
    /// The bytes in the queue.
    pub queue_bytes: u64,
    /// Frames sent, by class, since the leg began.
    pub sent: ByClass,
    /// Frames dropped, by reason and class, since the leg began.
    pub dropped: BTreeMap<DropReason, ByClass>,
    /// TCP's smoothed round trip, microseconds; `None` if the leg is not a TCP connection.
    pub rtt_us: Option<u64>,
    /// Segments retransmitted.
    pub retransmitted: u32,
    /// The child's last report.
    #[serde(skip)]
    pub child_report: ReceptionReport,
    /// The median age of frames at the child, microseconds.
    pub child_age_us: u32,
}

impl LegStatus {
    /// The status of a new leg.
    pub fn new(to: String, taker: ChildKind, wants: Quality, latency: Duration) -> Self {
        Self {
            to,
            taker,
            wants,
            tracks: Vec::new(),
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
            child_report: ReceptionReport::default(),
            child_age_us: 0,
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
