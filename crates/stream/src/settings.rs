//! The settings of a node's streams.

use serde::Deserialize;
use std::time::Duration;
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::mesh::{Member, MemberPattern, Name};

/// When probe trains measure the legs of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Never.
    Off,
    /// While a subscriber gets less than it requests.
    #[default]
    Degraded,
    /// Always, back to back.
    Always,
}

/// How legs adapt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Adapt {
    /// By their queues alone: every requested frame is queued and dropped only when it does not fit.
    #[default]
    Queue,
    /// By levels as well: those of the oracle's plan, or chosen by the known rate of the path to the member.
    Levels,
}

/// Who chooses the parents and levels of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheduler {
    /// The mesh's oracle, for all members together.
    #[default]
    Oracle,
    /// Each node for its own legs; subscribers name their parents.
    Local,
}

/// A command that makes a stream, or more renditions, of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transcoder {
    /// The stream that it reads, as an MPEG transport stream.
    pub source: Name,
    /// The stream that it makes; `None`: more renditions of the stream that it reads.
    pub name: Option<Name>,
    /// The program and its arguments; no shell is involved.
    pub command: Vec<String>,
}

/// The settings of a node's streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Members that may publish here; this host's owner always may.
    pub publish: Vec<MemberPattern>,
    /// Members that may subscribe to streams published here.
    pub subscribe: Vec<MemberPattern>,
    /// Whether this node relays streams published elsewhere.
    pub relay: bool,
    /// Whether legs use the carrier where both ends have one, so that they ride in probe trains.
    pub ride: bool,
    /// When probe trains measure the legs.
    pub measure: Measure,
    /// How legs adapt.
    pub adapt: Adapt,
    /// Who chooses parents and levels.
    pub scheduler: Scheduler,
    /// The most that plans may have this node send of all streams together; `None`: no limit.
    pub egress: Option<Rate>,
    /// The most streams at a time, including relayed ones.
    pub max_streams: usize,
    /// The most subscribers and nodes served at a time, over all streams.
    pub max_subscribers: usize,
    /// The memory for one stream's frames.
    pub memory: ByteSize,
    /// The memory for one leg's queue.
    pub leg_memory: ByteSize,
    /// A stream whose publisher disappeared ends after this time.
    pub grace: Duration,
    /// A leg without progress for this long ends.
    pub stall: Duration,
    /// Commands that make streams or renditions of others that are published here.
    pub transcoders: Vec<Transcoder>,
}

impl Settings {
    /// Whether this member may publish here.
    pub fn may_publish(&self, member: &Member) -> bool {
        self.publish.iter().any(|pattern| pattern.matches(member))
    }

    /// The commands that make renditions of this stream.
    pub fn rendition_commands(&self, stream: &Name) -> Vec<Transcoder> {
        let all = self.transcoders.iter();
        all.filter(|one| one.source == *stream && one.name.is_none()).cloned().collect()
    }
}

impl Default for Settings {
    /// 16 MiB hold eight seconds at 16 Mbit/s, and 4 MiB half a second at 64 Mbit/s. An encoder restarts within 30 s.
    /// 10 s is ten times the usual outage while routers converge on another path in the same network.
    fn default() -> Self {
        Self {
            publish: Vec::new(),
            subscribe: Vec::new(),
            relay: false,
            ride: false,
            measure: Measure::default(),
            adapt: Adapt::default(),
            scheduler: Scheduler::default(),
            egress: None,
            max_streams: 64,
            max_subscribers: 512,
            memory: ByteSize::from_bytes(16 << 20),
            leg_memory: ByteSize::from_bytes(4 << 20),
            grace: Duration::from_secs(30),
            stall: Duration::from_secs(10),
            transcoders: Vec::new(),
        }
    }
}
