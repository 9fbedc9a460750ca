//! The messages about measurements and detours between nodes and the oracle, as JSON over the API.
//!
//! | Request | Who | Reply |
//! |---|---|---|
//! | `GET /v1/measure/orders?wait_s=S` | nodes | [`Orders`], at once if there is one, empty after S seconds |
//! | `POST /v1/measure/reports` with [`Reports`] | members | [`ReportsReply`] |
//! | `GET /v1/candidates?strategy=S&m=M` | members | [`CandidatesReply`] |
//! | `GET /v1/paths?after=A&legs=L` | members | [`PathsReply`] |
//!
//! Source: UKAIRO §3.1. Ages are sent as durations, since hosts' clocks differ.

use super::Name;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thalweg_measure::{AvailableRate, Bound, planned_rate};
use thalweg_units::serde_duration;

/// The maximum number of entries of one [`Reports`]; a node with more sends several.
pub const MOST_ENTRIES: usize = 200;

/// The maximum size of one [`Reports`] as JSON, bytes; an oracle accepts 64 KiB.
pub const MOST_BYTES: usize = 60_000;

/// The highest plausible rate of a leg, bit/s. A claim above it is a lie or an error.
pub const MOST_BPS: f64 = 100e9;

/// An order to measure one leg now: the ordered node sends, and `to` receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The id of the order in reports; never reused.
    pub id: u64,
    pub to: Name,
    /// The maximum number of bytes to send.
    pub max_bytes: u64,
    /// The maximum time to send (UKAIRO §3.2.1: 5 s).
    #[serde(with = "serde_duration")]
    pub max_time: Duration,
    /// The congestion control of the deployment; none: the host's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// How long the order is valid.
    #[serde(with = "serde_duration")]
    pub valid_for: Duration,
    /// The ticket that the sender shows to `to`: [`super::measure_ticket::Ticket::sign`].
    pub ticket: String,
}

/// Orders to execute one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// The orders, in the order of execution.
    pub orders: Vec<Order>,
}

/// Reports of a member: at most [`MOST_ENTRIES`] entries and [`MOST_BYTES`] of JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reports {
    /// The outcomes of ordered measurements.
    #[serde(default)]
    pub done: Vec<OrderReport>,
    /// Data received in measurements by others, to check the sender's report.
    #[serde(default)]
    pub received: Vec<ReceivedReport>,
    /// The goodput of users' own transfers, which is measured at no cost.
    #[serde(default)]
    pub passive: Vec<PassiveReport>,
    /// The results of this member's probe trains on legs from it. An older oracle ignores them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probed: Vec<TrainReport>,
    /// The load of this relay.
    #[serde(default)]
    pub load: Option<Load>,
}

/// How an ordered measurement ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OrderReport {
    pub id: u64,
    pub outcome: Outcome,
}

/// The outcome of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The leg was measured.
    Measured {
        /// The rate acknowledged by the receiver's TCP, counted by the sender, bit/s. The receiver's own figure for the
        /// same time is in its [`ReceivedReport`].
        bps: f64,
        /// Half the interquartile range of the samples, bit/s.
        spread_bps: Option<f64>,
        /// Bytes sent.
        bytes: u64,
        /// The duration at the sender.
        #[serde(with = "serde_duration")]
        took: Duration,
        /// Whether the rate had become steady; otherwise a limit ended the measurement.
        steady: bool,
        /// Whether the leg may be faster, because the byte limit, slow start or an operator's rate limit bounded the
        /// measurement.
        #[serde(default)]
        at_least: bool,
        /// The observed round-trip time, s.
        rtt_s: Option<f64>,
        /// The time since the measurement ended.
        #[serde(with = "serde_duration")]
        age: Duration,
    },
    /// One of the two nodes was in another measurement, so nothing was measured. The order may be repeated.
    Busy,
    /// Nothing was measured.
    Failed {
        /// The reason, for people.
        why: String,
        /// Whether the other node could not be reached.
        is_down: bool,
        /// Bytes sent nevertheless.
        bytes: u64,
    },
}

/// The data that one end received in a measurement by another member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceivedReport {
    /// [`Order::id`], according to the sender.
    pub id: u64,
    pub from: Name,
    pub bps: f64,
    pub bytes: u64,
    /// As in [`Outcome::Measured`].
    #[serde(default)]
    pub at_least: bool,
    /// The time since the measurement ended.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}

/// The goodput of a user's own transfer over one leg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PassiveReport {
    /// The number of the entry at its reporter. A second entry with the same number is a repetition, sent because the
    /// reply was lost. 0: not numbered.
    #[serde(default)]
    pub id: u64,
    /// The sender of the bytes.
    pub from: Name,
    /// The receiver of the bytes.
    pub to: Name,
    pub bps: f64,
    /// Whether something other than the path limited the transfer, so that the leg may be faster.
    pub at_least: bool,
    /// The size of the transfer, bytes.
    pub bytes: u64,
    /// The time since the transfer ended.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}

/// The available bandwidth of a leg from the reporting member, measured by probe trains (MGRP §3.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainReport {
    /// As [`PassiveReport::id`], from the same sequence of numbers.
    #[serde(default)]
    pub id: u64,
    /// The receiver of the leg.
    pub to: Name,
    /// The lower end of the range, bit/s.
    pub low_bps: f64,
    /// The upper end of the range, bit/s; equal to the lower end if there is a single value.
    pub high_bps: f64,
    /// Whether the true value may be higher, because the hosts cannot probe faster.
    pub at_least: bool,
    /// The bytes of the trains.
    pub bytes: u64,
    /// The time since the measurement ended.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}

/// The load of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The recent rate of relayed data, bit/s.
    pub bps: f64,
    /// The maximum rate or the capacity that the operator configured, bit/s; none: unknown.
    pub limit_bps: Option<f64>,
    /// The present number of sessions.
    pub sessions: u64,
    /// The maximum number of sessions.
    pub max_sessions: u64,
}

/// The reply to a [`Reports`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportsReply {
    /// The number of accepted entries.
    pub accepted: u64,
    /// Why other entries were refused.
    #[serde(default)]
    pub refused: Vec<String>,
}

/// The rule by which candidates are chosen (UKAIRO §3.1.2, §2.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Eq. (3): the same candidates for all clients.
    Oblivious,
    /// A random subset of the better half.
    Balanced,
    /// Eq. (4): candidates for the requesting client.
    Specific,
    /// By the remaining capacity of each relay. Not in the paper.
    #[default]
    LoadAware,
}

/// The recommended relays for one client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CandidatesReply {
    pub strategy: Strategy,
    /// The relays, the best first.
    pub candidates: Vec<Candidate>,
    /// How long the candidates may be used without a new request.
    #[serde(with = "serde_duration")]
    pub valid_for: Duration,
    /// The number of measured ordered pairs of nodes.
    pub measured: u64,
    /// The number of all ordered pairs of nodes.
    pub pairs: u64,
}

/// A relay that the oracle recommends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    pub relay: Name,
    /// The mean gain d_l as a fraction of the direct rate, at least 0; Eq. (3) or (4).
    pub score: f64,
    /// The number of pairs that the mean covers.
    pub evidence: u64,
    /// The median age of its measurements.
    #[serde(with = "serde_duration")]
    pub age: Duration,
    /// The load divided by the limit, 0..=1, if the relay reports it.
    pub load: Option<f64>,
}

/// The oracle's knowledge of paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathsReply {
    /// The names of the nodes, indexed by `legs`.
    pub nodes: Vec<Name>,
    pub legs: Vec<LegEntry>,
    /// The nodes that do not respond.
    pub down: Vec<Down>,
    /// Contradictions between the two ends of a measurement, or between two reporters.
    pub disagreements: Vec<Disagreement>,
    /// Whether measurements are ordered, and what prevents them; none: this oracle does not order measurements now, but
    /// another one may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measuring: Option<MeasuringStatus>,
    /// Where further legs begin, as `after` of `GET /v1/paths`; absent: there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

impl PathsReply {
    /// The name in `nodes` for an index that no node has; no member may have this name.
    pub const FREE: &str = "0.free";
}

/// Whether an oracle orders measurements, and what prevents them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasuringStatus {
    /// Whether measurements are ordered at all.
    pub enabled: bool,
    /// Relays whose daily bytes are used up.
    #[serde(default)]
    pub spent: Vec<SpentRelay>,
    /// The last order that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<FailedOrder>,
}

/// A relay that is not measured for now, because its bytes for any 24 hours are used up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpentRelay {
    pub node: Name,
    /// The time until there are bytes for one more measurement; none: never, since one costs more than a day's bytes.
    #[serde(default, with = "serde_duration::option")]
    pub free_in: Option<Duration>,
}

/// An order that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedOrder {
    pub from: Name,
    pub to: Name,
    /// The sender's reason, at most 200 characters, without control characters.
    pub why: String,
    /// The time since the order failed.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}

/// A measured leg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LegEntry {
    /// The index of the sender.
    pub from: u32,
    /// The index of the receiver.
    pub to: u32,
    pub bps: f64,
    /// Half the interquartile range of the samples, bit/s.
    pub spread_bps: Option<f64>,
    /// The method: `transfer`, `passive`, `sampling`, or `train` if only [`LegEntry::available`] is known.
    pub method: String,
    /// Whether the leg may be faster.
    pub at_least: bool,
    /// The latest round-trip time of a flow over the leg, s; absent: unknown, or the oracle is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_s: Option<f64>,
    /// The age of the measurement.
    #[serde(with = "serde_duration")]
    pub age: Duration,
    /// The recent result of probe trains; absent: none, or the oracle is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available: Option<Available>,
}

impl LegEntry {
    /// The rate for planning, bit/s, `since` after this entry was sent; see [`planned_rate`].
    pub fn planned_bps(&self, since: Duration) -> f64 {
        let spare = self.available.as_ref().map(|found| AvailableRate {
            bps: found.bps,
            bound: if found.at_least { Bound::AtLeast } else { Bound::Exact },
            age: found.age + since,
        });
        planned_rate(self.bps, self.age + since, spare)
    }
}

/// The available bandwidth of a leg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Available {
    /// The middle of the range, bit/s.
    pub bps: f64,
    /// Half the width of the range, bit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_bps: Option<f64>,
    /// Whether more may be available.
    pub at_least: bool,
    /// The age of the measurement.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}

/// A node that does not respond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    pub node: Name,
    /// The reason, for people.
    pub why: String,
    /// The time since it stopped responding.
    #[serde(with = "serde_duration")]
    pub since: Duration,
}

/// A contradiction about one leg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Disagreement {
    pub from: Name,
    pub to: Name,
    /// The claimed rate, bit/s.
    pub claimed_bps: f64,
    /// The member that claims it.
    pub by: Name,
    /// The rate that the other end observed, bit/s; none: nothing.
    pub seen_bps: Option<f64>,
    /// The rate that the oracle uses instead, bit/s; none: nothing.
    pub believed_bps: Option<f64>,
    /// The time since the contradiction was found.
    #[serde(with = "serde_duration")]
    pub age: Duration,
}
