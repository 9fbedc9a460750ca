//! What source and receiver say on their control channel.

use super::Refusal;
use crate::{mesh::Name, object::MAX_WHY};
use serde::{Deserialize, Serialize};

/// The longest word of a source.
pub const MAX_WORD: usize = 64 << 10;

/// The longest report of a receiver.
pub const MAX_REPORT: usize = 64 << 10;

/// The most parents that a plan names for one receiver. Further ones are not sent.
pub const MAX_CANDIDATES: usize = 32;

/// The most hosts of a way that are told.
pub const MAX_WAY: usize = 64;

/// A parent that a receiver may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// A receiver; none: the source itself.
    pub name: Option<Name>,
    /// What is expected of it, bits a second; none: not known.
    pub bps: Option<u64>,
    /// How it serves: streams are what relays without a store give.
    pub want: super::Want,
}

/// What a plan expects for one receiver: what its host shows beside what it gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// The slowest hop on the widest way to it, bits a second; none: not known.
    pub min_hop_bps: Option<u64>,
    /// What it gets if all goes as planned, bits a second; none: not known.
    pub bps: Option<u64>,
    /// The members between the source and the receiver in the plan, from the source on: at most [`MAX_WAY`].
    pub way: Vec<Name>,
    /// How many receivers the cast has, with it.
    pub receivers: u32,
}

/// The largest ring: a second of 512 Mbit/s. A node keeps one a cast, and a source says how large.
pub const MAX_RING: u64 = 64 << 20;

/// How a node hands on what comes to it, as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingTerms {
    /// The most bytes of symbols that wait for its children.
    pub bytes: u64,
    /// Which part of each block's repair symbols it gives of its own, once it holds the block.
    pub part: u32,
    /// Of so many parts.
    pub parts: u32,
}

impl RingTerms {
    /// Whether a node can take them: no ring beyond [`MAX_RING`].
    pub fn are_sound(&self) -> bool {
        self.bytes <= MAX_RING
    }
}

/// Source to receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// The encoded manifest follows, as long as the offer says.
    Manifest,
    /// The encoded layout follows, as long as the offer says.
    Layout,
    /// Its parents from now on, the best first.
    Parents {
        /// At most [`MAX_CANDIDATES`].
        candidates: Vec<Candidate>,
        /// How many of them at a time.
        at_once: u32,
    },
    /// It is given up: what came may be thrown away.
    Forget,
    /// Nothing is to be said; so that silence means a dead source.
    Here,
    /// What the plan expects for it.
    Expected(Expected),
    /// How it hands on to those who want a stream.
    Ring(RingTerms),
}

/// What a receiver got from a parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromParent {
    /// Who; none: the source.
    pub name: Option<Name>,
    /// Whether it is one now.
    pub is_now: bool,
    /// Bits a second over the last second or so.
    pub bps: u64,
    /// Bytes of symbols that were new.
    pub bytes: u64,
}

/// Why a parent was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// It sent what the digests do not allow: it is not asked again.
    Corrupt,
    /// It broke off, or cannot be reached.
    Lost,
    /// Nothing came any more.
    Silent,
    /// Another one is clearly faster.
    Slow,
    /// It does not give it.
    Refused,
}

/// How far a receiver is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Bytes of the object that are held and proven.
    pub held: u64,
    /// Bits a second over the last second or so, of new symbols.
    pub bps: u64,
    /// Bytes of symbols that came in this session, all of them.
    pub received: u64,
    /// Of those: what was here already, or was of no use.
    pub beyond: u64,
    /// Bytes of symbols that it has sent to others.
    pub served: u64,
    /// Symbols that rings here did not forward, as children had no room.
    pub missed: u64,
    /// The most bytes that waited for its children at once: in its ring, and begun by their connections.
    pub ring_peak: u64,
    /// Its parents, of now and before.
    pub parents: Vec<FromParent>,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// It has its name in the inbox: complete, verified, synced. In this or an earlier session.
    Complete {
        /// From the first symbol of this session to the last, µs; 0: nothing came in it.
        micros: u64,
    },
    /// It cannot go on; what it holds is kept.
    Failed(Refusal),
}

/// Receiver to source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// What it lacks of the object's description.
    Needs {
        /// The manifest.
        manifest: bool,
        /// The layout.
        layout: bool,
    },
    /// The source is to dial a data leg.
    Call(super::Want),
    /// Every second or two.
    Account(Account),
    /// A parent was left.
    Left {
        /// Who; none: the source.
        name: Option<Name>,
        /// Why.
        fault: Fault,
        /// In words.
        why: String,
    },
    /// The end.
    Ended(Ended, Account),
    /// After it has said that it would take a cast: something of the name and the length is there, and only the
    /// cast itself compares it.
    Uncompared,
    /// Before the end of a cast with owners or groups: those of so many files, directories and links are not set. Only
    /// sent if the layout has some.
    OwnersIgnored(u64),
    /// Symbolic links that are left out because they could lead out of the inbox. Sent after the end of a cast, since
    /// sources of earlier versions cannot decode it.
    LinksRefused {
        /// How many.
        count: u64,
        /// The path of the first, and why it is left out.
        first: String,
    },
    /// After it has said that it would take a cast, and after `Uncompared`, since sources of earlier versions read no
    /// further report.
    InboxRules(InboxRules),
}

/// What the source of a cast may decide in an inbox.
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
    /// Anywhere.
    Anywhere,
    /// Into the inbox, whose absolute path has this BLAKE3 hash: paths of a receiver are not shown to sources.
    Within([u8; 32]),
}

impl Report {
    /// With no text longer than is kept of another's words.
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
            Self::Ended(Ended::Failed(why), account) => {
                Self::Ended(Ended::Failed(why.cut()), account)
            }
            other => other,
        }
    }
}

/// Leaves at most `most` bytes of a text.
pub(super) fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        // At 0 there is a boundary.
        let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.shrink_to_fit();
        text.push('…');
    }
}
