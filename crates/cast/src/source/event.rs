//! Events of a cast at its source.
//!
//! In JSON, one object per line; the field `event` is its name. Rates are in bit/s, sizes in bytes.

use super::predict::PredictedRates;
use serde::Serialize;
use thalweg_base::verdict::Verdict;
use thalweg_wire::{cast::Fault, mesh::Name};

/// Receives events. Called from the cast's tasks, so it must not block.
pub trait EventSink: Send + Sync {
    fn event(&self, event: &Event);
}

impl EventSink for () {
    fn event(&self, _: &Event) {}
}

/// The state of a receiver as the source knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiverState {
    /// Not reached yet.
    #[default]
    Waiting,
    /// It has accepted the cast.
    Receiving,
    /// It has the object.
    Complete,
    /// It refuses the cast, or cannot continue.
    Failed,
    /// The connection was lost; the receiver is dialled again.
    Lost,
}

/// A receiver's place in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedReceiver {
    pub name: Name,
    /// Its parents, the best first; the source by its own name.
    pub parents: Vec<Name>,
    /// The rate of the slowest hop on the widest path to it, Eq. (2) with measured rates; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_hop_bps: Option<u64>,
    /// The rate that the plan expects for it while all receivers are served; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_bps: Option<u64>,
    /// Rates predicted by the formulas for its path in the plan; absent if too little is known of the legs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted: Option<PredictedRates>,
}

/// The progress of a receiver.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReceiverProgress {
    pub name: Name,
    pub state: ReceiverState,
    /// Bytes of the object that it holds.
    pub held_bytes: u64,
    /// The rate over about the last second; for a complete receiver, its last rate.
    pub rate_bps: u64,
    /// The rate of the slowest hop on the widest path to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_hop_bps: Option<u64>,
    /// Seconds until it has the object, at this rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<f64>,
    /// Symbols that its children missed because its ring was full.
    pub missed_symbols: u64,
    /// The peak number of bytes held for its children: in its ring, and partly taken by their connections.
    pub ring_peak_bytes: u64,
    pub parents: Vec<ParentRate>,
}

/// The progress of a relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RelayProgress {
    pub name: Name,
    /// Symbols that its children missed because its ring was full.
    pub missed_symbols: u64,
    /// The peak number of bytes held for its children.
    pub ring_peak_bytes: u64,
}

/// The rate of one parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParentRate {
    /// The parent; the source has its own name.
    pub name: Name,
    /// The rate over about the last second.
    pub rate_bps: u64,
    /// New bytes received from it.
    pub bytes: u64,
}

/// Bytes received from a parent in the whole session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParentBytes {
    /// The parent; the source has its own name.
    pub name: Name,
    /// New bytes of symbols received from it.
    pub bytes: u64,
}

/// The result of a cast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All receivers have the object.
    Complete,
    /// Some receivers have the object, or parts of it were left out.
    Partial,
    /// No receiver has the object.
    #[default]
    Failed,
    /// The cast was stopped by the user.
    Interrupted,
}

/// The final report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    pub outcome: Outcome,
    /// A dry run: receivers were only asked, and `complete` counts those that would accept the cast.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Bytes of the object.
    pub bytes: u64,
    /// Receivers that have the object.
    pub complete: usize,
    /// Those of them that had it before it was offered.
    pub already: usize,
    /// The number of receivers.
    pub receivers: usize,
    /// Files and directories of the source that cannot be read, and are left out.
    pub failed_files: u64,
    /// Symbolic links that receivers left out because they could lead out of their inboxes.
    pub refused_links: u64,
    /// Seconds since the first offer.
    pub seconds: f64,
    /// Bytes of symbols that the source itself has sent.
    pub served_bytes: u64,
    /// Why the object could not be served any longer, if that ended the cast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// An entry cannot be cast, and is left out.
    PassedOver {
        path: String,
    },
    /// Further entries are left out than were named ([`Self::PassedOver`]).
    MorePassedOver {
        /// The number of further entries.
        count: u64,
    },
    /// Set-user-ID, set-group-ID and sticky bits, which receivers do not keep.
    SpecialBits {
        /// The number of files and directories that have them.
        count: u64,
    },
    /// A receiver did not set the requested owners and groups.
    OwnersIgnored {
        receiver: Name,
        /// The number of files, directories and links.
        count: u64,
    },
    /// A receiver left out symbolic links that could lead out of its inbox.
    LinksRefused {
        receiver: Name,
        /// The number of links.
        count: u64,
        /// The path of the first, and why it is left out.
        first: String,
    },
    /// A file or directory cannot be read, and is left out.
    FileFailed {
        file: String,
        why: String,
    },
    /// Further entries cannot be read than were named ([`Self::FileFailed`]).
    MoreFailed {
        /// The number of further entries.
        count: u64,
    },
    /// The object is read for its digests.
    Hashing {
        /// Bytes read so far.
        done_bytes: u64,
        /// Bytes of the object.
        total_bytes: u64,
    },
    /// The object is described; receivers are dialled.
    Started {
        /// The cast's ID.
        cast: String,
        /// The object's name in the inboxes.
        name: String,
        /// The BLAKE3 hash of its bytes.
        object: String,
        /// Bytes of the object.
        bytes: u64,
        symbol_bytes: u32,
        /// Source symbols per block.
        block_symbols: u32,
        receivers: Vec<Name>,
    },
    /// The plan: each receiver's parents.
    Planned {
        /// The receivers' parts of the plan.
        receivers: Vec<PlannedReceiver>,
    },
    /// A receiver has accepted the cast.
    Accepted {
        receiver: Name,
        /// Bytes of the object that it already held.
        held_bytes: u64,
    },
    /// Dry run: a receiver or a relay would accept the cast.
    WouldTake {
        /// A copy with this name and length exists, and only the cast itself compares it.
        uncompared: bool,
        /// The receiver or relay.
        receiver: Name,
    },
    /// A receiver cannot be reached, or the connection was lost; it is dialled again.
    Unreached {
        receiver: Name,
        why: String,
    },
    /// A receiver refuses the cast, or cannot continue.
    Refused {
        receiver: Name,
        why: String,
        /// Whether it is tried again.
        again: bool,
    },
    /// A receiver left a parent.
    ParentLeft {
        receiver: Name,
        /// The parent; the source has its own name.
        parent: Name,
        /// The kind of fault.
        #[serde(serialize_with = "fault_word")]
        fault: Fault,
        /// The reason as text.
        why: String,
    },
    /// The progress of all receivers; once a second.
    Progress {
        /// Seconds since the first offer.
        seconds: f64,
        /// Bytes of the object.
        total_bytes: u64,
        /// Bytes of symbols that the source itself has sent.
        served_bytes: u64,
        /// The peak number of bytes held for children in the source's own ring.
        ring_peak_bytes: u64,
        receivers: Vec<ReceiverProgress>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        relays: Vec<RelayProgress>,
    },
    /// A receiver has the object: complete, verified, synced, under its final name.
    Received {
        receiver: Name,
        /// It had the object before it was offered; the following values are those of an earlier session.
        already: bool,
        /// Bytes of symbols that it received in this session.
        received_bytes: u64,
        /// Those of them that were of no use.
        duplicate_bytes: u64,
        /// Bytes that it sent to others.
        served_bytes: u64,
        /// New bytes from each parent.
        parents: Vec<ParentBytes>,
        /// Seconds from its first search for parents to the last symbol; 0 if nothing was transferred.
        seconds: f64,
        /// New bytes over that time.
        rate_bps: u64,
        /// Seconds from the first offer until the source learned of it.
        after_seconds: f64,
    },
    /// The object cannot be read any more, or has changed; the cast ends.
    Broken {
        why: String,
    },
    /// A message for the user.
    Note {
        text: String,
    },
    /// Why it took as long as it did; comes before the end, unless it failed or was stopped.
    Verdict(Verdict),
    Ended(Totals),
}

fn fault_word<S: serde::Serializer>(fault: &Fault, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(match fault {
        Fault::Corrupt => "corrupt",
        Fault::Lost => "lost",
        Fault::Silent => "silent",
        Fault::Slow => "slow",
        Fault::Refused => "refused",
    })
}
