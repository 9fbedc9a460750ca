//! Counts the messages beside the data, by the rules of the protocol (`thalweg_wire::cast`, and the node's pauses).
//!
//! Counts are upper bounds: parts that fall together in one message (a pull that asks for several symbols at once,
//! blocks that are done together) are counted separately. Bytes are of frames and of the TLS record around each;
//! headers of packets and handshakes are not counted.

use serde::Serialize;
use std::ops::{Add, AddAssign};
use thalweg_plan::tree::{Layout, Storage};
use thalweg_units::ByteSize;

/// A TLS record around a message (RFC 8446 §5.2), B.
const RECORD: u64 = 22;

/// A message with a type and a few numbers, with its frame's header, B.
const SHORT: u64 = 20;

/// A receiver's account of its state with its parents, B.
const ACCOUNT: u64 = 100;

/// A digest, B.
const DIGEST: u64 = 32;

/// The parts of a page message beside its digests, B: its frame, and the signature on a page of repair symbols.
const PAGE: u64 = 128;

/// The messages that open and close a leg: the greeting with its pass, the answer, what is held already, the goodbye.
const LEG: u64 = 4;

/// The messages with the source, once: its offer and the answer; a request for the missing parts of manifest and
/// layout, and these parts; the parents, what is expected of the receiver, a ring's terms; how it ended.
const ONCE: u64 = 9;

/// The longest of those, B.
const LONG: u64 = 512;

/// How often nodes send control messages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control {
    /// Each receiver sends its account to the source once in this time, s.
    pub account: f64,
    /// The source tells each receiver that it is there once in this time, s.
    pub here: f64,
    /// A store that receives tells its children what arrived, at most once in this time, s, and once a symbol.
    pub have: f64,
    /// The size of a symbol; a child asks a store for each.
    pub symbol: ByteSize,
    /// The size of a block.
    pub block: ByteSize,
}

impl Default for Control {
    fn default() -> Self {
        let (symbol, block) = (ByteSize::from_bytes(16 << 10), ByteSize::from_bytes(8 << 20));
        Self { account: 1.0, here: 5.0, have: 0.01, symbol, block }
    }
}

/// A number of messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// The number of messages.
    pub messages: u64,
    /// Their bytes, with the frames and records around them.
    pub bytes: u64,
}

impl Traffic {
    /// `messages` messages of this length each.
    const fn new(messages: u64, length: u64) -> Self {
        Self { messages, bytes: messages * (length + RECORD) }
    }
}

impl Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { messages: self.messages + other.messages, bytes: self.bytes + other.bytes }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The messages that a node sends and gets, except for data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Messages {
    /// With the source, about the cast: the offer, the manifest, accounts, and that the source is there.
    pub with_source: Traffic,
    /// With its parent: pages, what it has, what is asked for, what is done, what is missing.
    pub with_parent: Traffic,
    pub with_children: Traffic,
}

impl Messages {
    /// The messages with the source and the parent.
    pub fn upward(&self) -> Traffic {
        self.with_source + self.with_parent
    }

    /// All messages.
    pub fn total(&self) -> Traffic {
        self.upward() + self.with_children
    }
}

impl Control {
    /// The messages by node; `took[node]` is how long it received, s.
    pub(super) fn count_messages(
        &self,
        layout: &Layout,
        keeps: impl Fn(usize) -> Storage,
        took: &[f64],
        length: ByteSize,
    ) -> Vec<Messages> {
        let mut messages = vec![Messages::default(); took.len()];
        let root = layout.order().first().copied();
        for parent in layout.order().iter().copied() {
            for child in layout.children(parent).iter().copied() {
                let seconds = (Some(parent) != root).then_some(took[parent].min(took[child]));
                let leg = match keeps(child) {
                    Storage::Ring(_) => self.ring_traffic(length),
                    _ => self.request_traffic(length, seconds),
                };
                messages[child].with_parent = leg;
                messages[parent].with_children += leg;
                messages[child].with_source = self.source_traffic(took[child]);
            }
        }
        messages
    }

    /// A leg on which each symbol is asked for, while the parent itself receives for `seconds`; `None`: the parent has
    /// everything and says so once.
    fn request_traffic(&self, length: ByteSize, seconds: Option<f64>) -> Traffic {
        let (symbols, blocks) = (count_parts(length, self.symbol), count_parts(length, self.block));
        let haves = seconds.map_or(1, |seconds| symbols.min(count_periods(seconds, self.have)));
        // Pages are asked for and given.
        Traffic::new(LEG + symbols + haves + blocks, SHORT) + self.page_traffic(blocks)
    }

    /// A leg that streams. For each block: its page; that all was sent, and what is missing; the sheet of repair
    /// symbols and the message for it; that it is done. A leg without losses takes half of these messages.
    fn ring_traffic(&self, length: ByteSize) -> Traffic {
        let blocks = count_parts(length, self.block);
        // The first message says what the child has already. What is missing are runs of symbols, here an eighth of
        // them.
        let lacking = SHORT + count_parts(self.block, self.symbol) / 8 * 4;
        Traffic::new(LEG + 1 + 3 * blocks, SHORT)
            + Traffic::new(blocks, lacking)
            + self.page_traffic(2 * blocks)
    }

    fn page_traffic(&self, pages: u64) -> Traffic {
        Traffic::new(pages, PAGE + DIGEST * count_parts(self.block, self.symbol))
    }

    fn source_traffic(&self, took: f64) -> Traffic {
        let (accounts, heres) = (count_periods(took, self.account), count_periods(took, self.here));
        Traffic::new(ONCE, LONG) + Traffic::new(accounts, ACCOUNT) + Traffic::new(heres, SHORT)
    }
}

fn count_parts(of: ByteSize, part: ByteSize) -> u64 {
    of.as_bytes().div_ceil(part.as_bytes().max(1))
}

/// The number of times in this many seconds; the first is at once.
fn count_periods(seconds: f64, period: f64) -> u64 {
    (seconds / period).ceil() as u64
}
