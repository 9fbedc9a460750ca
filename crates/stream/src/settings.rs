//! What a node does with streams.

use serde::Deserialize;
use std::time::Duration;
use thalweg_mesh::Whom;
use thalweg_units::ByteSize;

/// When legs that streams use are measured by probe trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Never.
    Off,
    /// While something is left out of a stream that a subscriber would like to have.
    #[default]
    Degraded,
    /// Always, one measurement after the other.
    Always,
}

/// What holds legs back when no oracle has a plan for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Adapt {
    /// Each leg's queue alone: all that is wanted is tried, and what does not go is left out at the last moment.
    #[default]
    Queue,
    /// Levels as well, by what the way to the member is known to take.
    Levels,
}

/// The settings of a node's streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Members who may publish here; this host's owner always may.
    pub publish: Vec<Whom>,
    /// Members who may subscribe to what is published here.
    pub subscribe: Vec<Whom>,
    /// Whether this node hands on streams that are published elsewhere.
    pub relay: bool,
    /// Whether legs go by the carrier where both ends have one, so that they ride in probe trains.
    pub ride: bool,
    /// When the legs are measured.
    pub measure: Measure,
    /// What holds them back without an oracle's plan.
    pub adapt: Adapt,
    /// Streams at a time, those that are only handed on among them.
    pub max_streams: usize,
    /// Subscribers and nodes that are served at a time, of all streams.
    pub max_subscribers: usize,
    /// What is held of one stream.
    pub memory: ByteSize,
    /// What waits for one leg.
    pub leg_memory: ByteSize,
    /// A stream whose publisher is gone without a word ends after so long.
    pub grace: Duration,
    /// A leg that takes nothing for so long ends.
    pub stall: Duration,
}

impl Default for Settings {
    /// 16 MiB: eight seconds at 16 Mbit/s. 4 MiB: half a second at 64 Mbit/s. 30 s: an encoder is started anew by then.
    /// 10 s: ten times what a path is usually dead for while routers converge on another one in the same network.
    fn default() -> Self {
        Self {
            publish: Vec::new(),
            subscribe: Vec::new(),
            relay: false,
            ride: false,
            measure: Measure::default(),
            adapt: Adapt::default(),
            max_streams: 64,
            max_subscribers: 512,
            memory: ByteSize::from_bytes(16 << 20),
            leg_memory: ByteSize::from_bytes(4 << 20),
            grace: Duration::from_secs(30),
            stall: Duration::from_secs(10),
        }
    }
}
