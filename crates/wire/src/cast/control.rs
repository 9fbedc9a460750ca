//! The messages between source and receiver on their control channel.

use super::Refusal;
use crate::{mesh::Name, object::MAX_WHY};
use serde::{Deserialize, Serialize};

/// The longest [`SourceMessage`], bytes.
pub const MAX_SOURCE_MESSAGE: usize = 64 << 10;

/// The longest [`Report`], bytes.
pub const MAX_REPORT: usize = 64 << 10;

/// The maximum number of parents sent to one receiver; the plan's further ones are omitted.
pub const MAX_CANDIDATES: usize = 32;

/// The maximum number of hosts in [`PlanExpectation::way`].
pub const MAX_WAY: usize = 64;

/// A possible parent of a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The receiver that is the parent; `None`: the source.
    pub name: Option<Name>,
    /// The expected rate, bit/s; `None`: unknown.
    pub bps: Option<u64>,
    /// How the parent serves. Relays, which store nothing, only stream.
    pub want: super::ServiceMode,
}

/// The plan's expectations for one receiver, which its host shows beside the measured values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanExpectation {
    /// The rate of the slowest hop on the widest path to the receiver, bit/s; `None`: unknown.
    pub min_hop_bps: Option<u64>,
    /// The planned rate of the receiver, bit/s; `None`: unknown.
    pub bps: Option<u64>,
    /// The members between the source and the receiver in the plan, beginning at the source; at most [`MAX_WAY`].
    pub way: Vec<Name>,
    /// The number of receivers of the cast, including this one.
    pub receivers: u32,
}

/// The largest ring, bytes: a second at 512 Mbit/s. A node has one ring per cast, whose size the source chooses.
pub const MAX_RING: u64 = 64 << 20;

/// The terms on which a node forwards symbols as they arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingTerms {
    /// The maximum number of bytes of symbols waiting for the node's children.
    pub bytes: u64,
    /// The part of each block's repair symbols that the node encodes and sends itself, once it has the block.
    pub part: u32,
    /// The number of parts.
    pub parts: u32,
}

impl RingTerms {
    /// Whether a node can accept the terms: the ring is at most [`MAX_RING`].
    pub fn are_sound(&self) -> bool {
        self.bytes <= MAX_RING
    }
}

/// A message from source to receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceMessage {
    /// The encoded manifest follows; the offer has its length.
    Manifest,
    /// The encoded layout follows; the offer has its length.
    Layout,
    /// The receiver's parents from now on, the best first.
    Parents {
        /// At most [`MAX_CANDIDATES`].
        candidates: Vec<Candidate>,
        /// The number of simultaneous parents.
        at_once: u32,
    },
    /// The cast is given up; the receiver may delete the data.
    Forget,
    /// A keep-alive, so that silence means that the source is dead.
    KeepAlive,
    /// The plan's expectations for the receiver.
    Expectation(PlanExpectation),
    /// The terms on which the receiver forwards to children that want a stream.
    Ring(RingTerms),
}

/// The data that a receiver has received from one parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParentReport {
    /// The parent; `None`: the source.
    pub name: Option<Name>,
    /// Whether it is a parent now.
    pub is_now: bool,
    /// The rate over about the last second, bit/s.
    pub bps: u64,
    /// Bytes of symbols that were new.
    pub bytes: u64,
}

/// Why a receiver left a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// It sent data that does not match the digests. It is not used again.
    Corrupt,
    /// The connection broke, or the parent cannot be reached.
    Lost,
    /// It stopped sending.
    Silent,
    /// Another parent is clearly faster.
    Slow,
    /// It refuses to serve the cast.
    Refused,
}

/// The progress of a receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Bytes of the object that the receiver has and has verified.
    pub held: u64,
    /// The rate of new symbols over about the last second, bit/s.
    pub bps: u64,
    /// Bytes of all symbols received in this session.
    pub received: u64,
    /// Bytes among them that were here already or of no use.
    pub beyond: u64,
    /// Bytes of symbols sent to other receivers.
    pub served: u64,
    /// Symbols that the rings here did not forward because children had no room.
    pub missed: u64,
    /// The maximum number of bytes that waited for the children at the same time, in the ring and in the connections'
    /// partly sent frames.
    pub ring_peak: u64,
    /// The present and former parents.
    pub parents: Vec<ParentReport>,
}

/// How a cast has ended at a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiverOutcome {
    /// The object is complete, verified and synced under its final name in the inbox, in this or an earlier session.
    Complete {
        /// The time from the first to the last symbol of this session, µs; 0: none arrived in it.
        micros: u64,
    },
    /// The receiver cannot continue; it keeps the data that it has.
    Failed(Refusal),
}

/// A message from receiver to source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The missing parts of the object's description.
    Needs {
        /// Whether the manifest is missing.
        manifest: bool,
        /// Whether the layout is missing.
        layout: bool,
    },
    /// Asks the source to dial a data leg.
    RequestLeg(super::ServiceMode),
    /// The progress, sent every second or two.
    Account(Account),
    /// The receiver has left a parent.
    Left {
        /// The parent; `None`: the source.
        name: Option<Name>,
        /// The kind of the reason.
        fault: Fault,
        /// The reason in words.
        why: String,
    },
    /// The cast has ended at this receiver.
    Ended(ReceiverOutcome, Account),
    /// Sent after the receiver has accepted a cast in a dry run: an object of this name and length exists, and only the
    /// cast itself compares it.
    Uncompared,
    /// The receiver ignores the owners and groups of this number of files, directories and links. Sent before the end
    /// of a cast whose layout has owners or groups.
    OwnersIgnored(u64),
    /// Symbolic links that the receiver has left out because they could lead out of the inbox. Sent after the end of a
    /// cast, since sources of earlier versions cannot decode it.
    LinksRefused {
        /// The number of links.
        count: u64,
        /// The path of the first link, and why it is left out.
        first: String,
    },
    /// The rules of the inbox. Sent after the receiver has accepted a cast in a dry run, and after `Uncompared`, since
    /// sources of earlier versions read no further report.
    InboxRules(InboxRules),
}

/// The rules of an inbox for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxRules {
    /// Whether owners and groups are set.
    pub sets_owners: bool,
    /// Where symbolic links may point.
    pub links: LinkRule,
}

/// Where symbolic links in an inbox may point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkRule {
    Anywhere,
    /// Only into the inbox. Contains the BLAKE3 hash of its absolute path, since sources must not learn a receiver's
    /// paths.
    Within([u8; 32]),
}

impl Report {
    /// Truncates its text to [`MAX_WHY`] bytes.
    pub fn cut(self) -> Self {
        match self {
            Self::Left { name, fault, mut why } => {
                cut(&mut why, MAX_WHY);
                Self::Left { name, fault, why }
            }
            Self::LinksRefused { count, mut first } => {
                cut(&mut first, MAX_WHY);
                Self::LinksRefused { count, first }
            }
            Self::Ended(ReceiverOutcome::Failed(why), account) => {
                Self::Ended(ReceiverOutcome::Failed(why.cut()), account)
            }
            other => other,
        }
    }
}

/// Truncates a text to at most `most` bytes and adds `…`.
pub(super) fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        // 0 is always a boundary.
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.shrink_to_fit();
        text.push('…');
    }
}
