//! What happens in the course of a cast, as its source tells it.
//!
//! As JSON one object a line; `event` names it. Rates are in bits a second, sizes in bytes.

use super::predict::Predicted;
use serde::Serialize;
use thalweg_wire::{cast::Fault, mesh::Name};

/// Whoever wants to know. Called from the cast's tasks: it must not block.
pub trait EventSink: Send + Sync {
    /// Takes note of one event.
    fn event(&self, event: &Event);
}

impl EventSink for () {
    fn event(&self, _: &Event) {}
}

/// How a receiver stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Not reached (yet).
    #[default]
    Waiting,
    /// It takes the cast.
    Receiving,
    /// It has it.
    Complete,
    /// It does not take it, or cannot.
    Failed,
    /// It was there, and is tried again.
    Lost,
}

/// A receiver's place in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Planned {
    /// The receiver.
    pub name: Name,
    /// Its parents, the best first; the source by its own name.
    pub parents: Vec<Name>,
    /// The slowest hop on the widest way to it, Eq. (2) by measured rates; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_hop_bps: Option<u64>,
    /// What the plan expects it to get while all get something; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_bps: Option<u64>,
    /// What the formulas say of the way of first parents to it; absent: too little is known of its legs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
}

/// How far a receiver is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReceiverProgress {
    /// The receiver.
    pub name: Name,
    /// How it stands.
    pub state: Standing,
    /// Bytes of the object that it holds.
    pub held_bytes: u64,
    /// Over the last second or so; of a complete one, over its last.
    pub rate_bps: u64,
    /// The slowest hop on the widest way to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_hop_bps: Option<u64>,
    /// When it will have it, at this rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<f64>,
    /// Symbols that rings there could not hand on.
    pub missed_symbols: u64,
    /// The most bytes that waited for its children at once: in its ring, and begun by their connections.
    pub ring_peak_bytes: u64,
    /// Its parents of now.
    pub parents: Vec<ParentRate>,
}

/// What a node does that hands on and keeps nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RelayProgress {
    /// Who.
    pub name: Name,
    /// Symbols that its ring could not hand on.
    pub missed_symbols: u64,
    /// The most bytes that waited for its children at once.
    pub ring_peak_bytes: u64,
}

/// What a parent gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParentRate {
    /// Who; the source by its own name.
    pub name: Name,
    /// Over the last second or so.
    pub rate_bps: u64,
    /// New bytes from it.
    pub bytes: u64,
}

/// What came from a parent in the whole session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ParentBytes {
    /// Who; the source by its own name.
    pub name: Name,
    /// New bytes of symbols from it.
    pub bytes: u64,
}

/// How a cast ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All have it.
    Complete,
    /// Some have it.
    Partial,
    /// Nobody has it.
    #[default]
    Failed,
    /// It was told to stop.
    Interrupted,
}

/// The end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// How.
    pub outcome: Outcome,
    /// Receivers were only asked: `complete` counts those that would take it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// Bytes of the object.
    pub bytes: u64,
    /// Receivers that have it.
    pub complete: usize,
    /// Of those: who had it before it was offered.
    pub already: usize,
    /// Receivers in all.
    pub receivers: usize,
    /// Files and directories of the source that cannot be read, and are left out.
    pub failed_files: u64,
    /// Symbolic links that receivers left out, as they could lead out of their inboxes.
    pub refused_links: u64,
    /// From the first offer on.
    pub seconds: f64,
    /// Bytes of symbols that the source itself has sent.
    pub served_bytes: u64,
    /// Why the object could not be given any more, if that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Something there cannot be cast, and is left out.
    PassedOver {
        /// Its path.
        path: String,
    },
    /// More was left out than was named ([`Self::PassedOver`]).
    MorePassedOver {
        /// How many.
        count: u64,
    },
    /// Set-user-ID, set-group-ID and sticky bits, which receivers do not keep.
    SpecialBits {
        /// The number of files and directories that have them.
        count: u64,
    },
    /// A receiver did not set the requested owners and groups.
    OwnersIgnored {
        /// The receiver.
        receiver: Name,
        /// The number of files, directories and links.
        count: u64,
    },
    /// A receiver left out symbolic links that could lead out of its inbox.
    LinksRefused {
        /// The receiver.
        receiver: Name,
        /// How many.
        count: u64,
        /// The path of the first, and why it is left out.
        first: String,
    },
    /// Something cannot be read, and is left out.
    FileFailed {
        /// Its path.
        file: String,
        /// What happened.
        why: String,
    },
    /// More cannot be read than was named ([`Self::FileFailed`]).
    MoreFailed {
        /// How many.
        count: u64,
    },
    /// The object is read for its digests.
    Hashing {
        /// Read so far.
        done_bytes: u64,
        /// Of so many.
        total_bytes: u64,
    },
    /// The object is described; receivers are dialled.
    Started {
        /// The cast.
        cast: String,
        /// What it is called in the inboxes.
        name: String,
        /// The BLAKE3 hash of its bytes.
        object: String,
        /// How many bytes.
        bytes: u64,
        /// Bytes of a symbol.
        symbol_bytes: u32,
        /// Symbols of a block.
        block_symbols: u32,
        /// Who is to have it.
        receivers: Vec<Name>,
    },
    /// Who is to get it from whom.
    Planned {
        /// By receiver.
        receivers: Vec<Planned>,
    },
    /// A receiver takes it.
    Accepted {
        /// Who.
        receiver: Name,
        /// What it held already.
        held_bytes: u64,
    },
    /// A receiver, or a node that is to hand it on, would take it: it was only asked.
    WouldTake {
        /// A copy with this name and length exists, and only the cast itself compares it.
        uncompared: bool,
        /// Who.
        receiver: Name,
    },
    /// A receiver is not there, or went; it is tried again.
    Unreached {
        /// Who.
        receiver: Name,
        /// Why.
        why: String,
    },
    /// A receiver does not take it, or cannot go on; `again`: it is tried again.
    Refused {
        /// Who.
        receiver: Name,
        /// Why.
        why: String,
        /// It is tried again.
        again: bool,
    },
    /// A receiver left a parent.
    ParentLeft {
        /// The receiver.
        receiver: Name,
        /// The parent; the source has its own name.
        parent: Name,
        /// What was wrong with it.
        #[serde(serialize_with = "fault_word")]
        fault: Fault,
        /// In words.
        why: String,
    },
    /// How far all are; once a second.
    Progress {
        /// Since the first offer.
        seconds: f64,
        /// Bytes of the object.
        total_bytes: u64,
        /// Bytes of symbols that the source itself has sent.
        served_bytes: u64,
        /// The most bytes that waited in its own ring at once.
        ring_peak_bytes: u64,
        /// By receiver.
        receivers: Vec<ReceiverProgress>,
        /// By relay.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        relays: Vec<RelayProgress>,
    },
    /// A receiver has it: complete, verified, synced, named.
    Received {
        /// Who.
        receiver: Name,
        /// It had it before it was offered: what follows is of an earlier session.
        already: bool,
        /// Bytes that came to it in this session.
        received_bytes: u64,
        /// Of those: of no use.
        duplicate_bytes: u64,
        /// What it gave to others.
        served_bytes: u64,
        /// From whom it got what was new.
        parents: Vec<ParentBytes>,
        /// Its own span, from its first look for parents to the last symbol; 0: nothing came.
        seconds: f64,
        /// New bytes over that span.
        rate_bps: u64,
        /// From the first offer until the source knew of it.
        after_seconds: f64,
    },
    /// The object cannot be read any more, or has changed: the cast ends.
    Broken {
        /// Why.
        why: String,
    },
    /// Something to know.
    Note {
        /// In words.
        text: String,
    },
    /// The end.
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
