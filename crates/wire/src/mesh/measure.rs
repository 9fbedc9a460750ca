//! What nodes and the oracle tell each other of measurements and detours: JSON over the API.
//!
//! | Request | Who | Reply |
//! |---|---|---|
//! | `GET /v1/measure/orders?wait_s=S` | nodes | [`Orders`], at once if there is one, empty after S seconds |
//! | `POST /v1/measure/reports` with [`Reports`] | members | [`ReportsReply`] |
//! | `GET /v1/candidates?strategy=S&m=M` | members | [`CandidatesReply`] |
//! | `GET /v1/paths?after=A&legs=L` | members | [`PathsReply`] |
//!
//! Source: UKAIRO §3.1. Ages travel as durations, since no two hosts' clocks agree.

use super::Name;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg_measure::{Bound, Spare, planned};
use thalweg_units::serde_duration;

/// The most entries of one [`Reports`]; whoever has more sends several.
pub const MOST_ENTRIES: usize = 200;

/// The most bytes of one [`Reports`] as JSON; an oracle takes 64 KiB.
pub const MOST_BYTES: usize = 60_000;

/// No leg moves more, bit/s: a claim above it is a lie or a mistake.
pub const MOST_BPS: f64 = 100e9;

/// Measure one leg now: the node that is asked sends, `to` receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Names it in the report; never used again.
    pub id: u64,
    /// The receiver of the bytes.
    pub to: Name,
    /// The most bytes to send.
    pub max_bytes: u64,
    /// The longest time to send for (UKAIRO §3.2.1: 5 s).
    #[serde(with = "serde_duration")]
    pub max_time: Duration,
    /// The congestion control of the deployment; none: the host's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// The order is void after this.
    #[serde(with = "serde_duration")]
    pub valid_for: Duration,
    /// What the sender shows to `to`: [`super::measure_ticket::Ticket::sign`].
    pub ticket: String,
}

/// Orders to carry out, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// In their order.
    pub orders: Vec<Order>,
}

/// What a member has to say: [`MOST_ENTRIES`] and [`MOST_BYTES`] of JSON at a time, at most.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reports {
    /// Ends of ordered measurements.
    #[serde(default)]
    pub done: Vec<Done>,
    /// What was received in others' measurements: the check against the other end.
    #[serde(default)]
    pub received: Vec<Received>,
    /// What users' own transfers reached, for free.
    #[serde(default)]
    pub passive: Vec<Watched>,
    /// What this member's probe trains found on legs from it. An older oracle passes them over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probed: Vec<Probed>,
    /// How loaded this relay is.
    #[serde(default)]
    pub load: Option<Load>,
}

/// How an ordered measurement ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// [`Order::id`].
    pub id: u64,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A rate.
    Measured {
        /// What the receiver's TCP acknowledged, bit/s, as the sender itself counted it. What
        /// the receiver says of the same time is in its own [`Received`].
        bps: f64,
        /// Half the width of the middle half of the samples, bit/s.
        spread_bps: Option<f64>,
        /// Bytes sent.
        bytes: u64,
        /// How long it took at the sender.
        #[serde(with = "serde_duration")]
        took: Duration,
        /// Whether it had become steady, or ended at a limit.
        steady: bool,
        /// Whether the leg may be faster: bytes, slow start or an operator's rate ended it.
        #[serde(default)]
        at_least: bool,
        /// The round-trip time seen, s.
        rtt_s: Option<f64>,
        /// How long ago it ended.
        #[serde(with = "serde_duration")]
        age: Duration,
    },
    /// One of the two was in another measurement, so that there was none; the leg is as good
    /// as before, and may be tried again.
    Busy,
    /// Nothing was measured.
    Failed {
        /// For people.
        why: String,
        /// Whether the other node could not be reached at all.
        is_down: bool,
        /// Bytes that were sent nevertheless.
        bytes: u64,
    },
}

/// What one end received in a measurement that another member sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// [`Order::id`], as the sender said it.
    pub id: u64,
    /// Who sent.
    pub from: Name,
    /// The rate, bit/s.
    pub bps: f64,
    /// Bytes received.
    pub bytes: u64,
    /// As of [`Outcome::Measured`].
    #[serde(default)]
    pub at_least: bool,
    /// How long ago it ended.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}

/// The goodput of somebody's own transfer over one leg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// Names it among its reporter's: a second one with this number is the first once more, told
    /// again since the answer was lost. 0: not named.
    #[serde(default)]
    pub id: u64,
    /// Where the bytes came from.
    pub from: Name,
    /// Where they went.
    pub to: Name,
    /// bit/s.
    pub bps: f64,
    /// Whether something other than the path held it back: the leg may be faster.
    pub at_least: bool,
    /// Bytes of the transfer.
    pub bytes: u64,
    /// How long ago.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}

/// The bandwidth that others leave on a leg from the member that tells, found by probe trains
/// (MGRP §3.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    /// As [`Watched::id`], of the same numbers.
    #[serde(default)]
    pub id: u64,
    /// Where the leg ends.
    pub to: Name,
    /// The range's lower end, bit/s.
    pub low_bps: f64,
    /// Its upper end; the same where there is one value.
    pub high_bps: f64,
    /// Whether the true value may be larger: the hosts cannot probe faster.
    pub at_least: bool,
    /// Bytes of the trains.
    pub bytes: u64,
    /// How long ago.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}

/// How loaded a relay is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// What it relays, bit/s, over the last while.
    pub bps: f64,
    /// What its operator says that it may or can relay, bit/s; none: that is not known.
    pub limit_bps: Option<f64>,
    /// Sessions now.
    pub sessions: u64,
    /// The most sessions.
    pub max_sessions: u64,
}

/// What became of a [`Reports`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportsReply {
    /// How many entries were taken in.
    pub accepted: u64,
    /// Why others were not.
    #[serde(default)]
    pub refused: Vec<String>,
}

/// By which rule candidates are chosen (UKAIRO §3.1.2, §2.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Eq. (3), the same for all.
    Oblivious,
    /// A random subset of the better half.
    Balanced,
    /// Eq. (4), for the client that asks.
    Specific,
    /// Ours: by what each relay still has to give (load-aware).
    #[default]
    LoadAware,
}

/// Relays for one client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CandidatesReply {
    /// The rule.
    pub strategy: Strategy,
    /// The better first.
    pub candidates: Vec<Candidate>,
    /// How long they may be used without asking again.
    #[serde(with = "serde_duration")]
    pub valid_for: Duration,
    /// Ordered pairs of nodes that are measured.
    pub measured: u64,
    /// All ordered pairs.
    pub pairs: u64,
}

/// One relay, as the oracle recommends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The relay.
    pub relay: Name,
    /// The mean gain d_l, a fraction of the direct rate, from 0 up; Eq. (3) or (4).
    pub score: f64,
    /// Over how many pairs it is a mean.
    pub evidence: u64,
    /// How old its measurements are, in the middle.
    #[serde(with = "serde_duration")]
    pub age: Duration,
    /// Load over limit, 0..=1, if the relay reports it.
    pub load: Option<f64>,
}

/// All that the oracle knows of paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathsReply {
    /// Names of the nodes that `legs` index.
    pub nodes: Vec<Name>,
    /// Measured legs.
    pub legs: Vec<LegEntry>,
    /// Nodes that do not answer, and since when.
    pub down: Vec<Down>,
    /// Where the two ends of a measurement, or two reporters, disagree.
    pub disagreements: Vec<Disagreement>,
    /// Whether measuring goes on, and what holds it up; none: this oracle does not order
    /// measurements now, another one may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measuring: Option<Measuring>,
    /// There are more legs: `GET /v1/paths?after=` this gives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

impl PathsReply {
    /// What `nodes` calls a place that no node has now; no member may have this name.
    pub const FREE: &str = "0.free";
}

/// Whether an oracle's measuring goes on, and what holds it up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measuring {
    /// Whether measurements are ordered at all.
    pub enabled: bool,
    /// Relays whose bytes of the day are used up.
    #[serde(default)]
    pub spent: Vec<Spent>,
    /// The last order of which nothing came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedOrder>,
}

/// A relay that is measured no more for now: its bytes of any 24 hours are used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Its name.
    pub node: Name,
    /// When there are bytes for one more measurement; none: never, since one costs more than a
    /// day's bytes.
    #[serde(default, with = "serde_duration::option")]
    pub free_in: Option<Duration>,
}

/// An order of which nothing came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedOrder {
    /// The sender.
    pub from: Name,
    /// The receiver.
    pub to: Name,
    /// The sender's words, 200 characters at most, without control characters.
    pub why: String,
    /// How long ago.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}

/// One measured leg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LegEntry {
    /// Index of the sender.
    pub from: u32,
    /// Index of the receiver.
    pub to: u32,
    /// bit/s.
    pub bps: f64,
    /// Half the width of the middle half of the samples, bit/s.
    pub spread_bps: Option<f64>,
    /// `transfer`, `passive`, `sampling`; `train`: nothing but [`LegEntry::available`] is known.
    pub method: String,
    /// Whether it may be faster.
    pub at_least: bool,
    /// The round trip that a flow over it saw last, s; absent: none did, or the oracle is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_s: Option<f64>,
    /// How old.
    #[serde(with = "serde_duration")]
    pub age: Duration,
    /// What probe trains found of late; absent: nothing, or the oracle is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<Available>,
}

impl LegEntry {
    /// What plans go by, bit/s, so long after this was told: see [`planned`].
    pub fn planned_bps(&self, since: Duration) -> f64 {
        let spare = self.available.as_ref().map(|found| Spare {
            bps: found.bps,
            bound: if found.at_least { Bound::AtLeast } else { Bound::Exact },
            age: found.age + since,
        });
        planned(self.bps, self.age + since, spare)
    }
}

/// What others leave of a leg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Available {
    /// The middle of the range, bit/s.
    pub bps: f64,
    /// Half the range's width, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_bps: Option<f64>,
    /// Whether it may be more.
    pub at_least: bool,
    /// How old.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}

/// A node that does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// Its name.
    pub node: Name,
    /// For people.
    pub why: String,
    /// Since when.
    #[serde(with = "serde_duration")]
    pub since: Duration,
}

/// Two say different things of one leg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disagreement {
    /// The leg's sender.
    pub from: Name,
    /// The leg's receiver.
    pub to: Name,
    /// What was claimed, bit/s.
    pub claimed_bps: f64,
    /// By whom.
    pub by: Name,
    /// What the other end saw, bit/s; none: nothing.
    pub seen_bps: Option<f64>,
    /// What was believed instead, bit/s; none: nothing.
    pub believed_bps: Option<f64>,
    /// How long ago.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}
