//! What is said beside the data, by what the protocol says (`thalweg_wire::cast`, and the node's pauses).
//!
//! At most: words that fall together in one message (a pull that asks for several symbols at once, blocks that are
//! done together) are counted apart. Bytes are of frames and of the TLS record around each; headers of packets and
//! handshakes are not counted.

use serde::Serialize;
use std::ops::{Add, AddAssign};
use thalweg_plan::tree::{Keeps, Layout};
use thalweg_units::ByteSize;

/// A TLS record around a message (RFC 8446 §5.2), B.
const RECORD: u64 = 22;

/// A message of a word and a few numbers, with its frame's head, B.
const SHORT: u64 = 20;

/// How a receiver stands, with its parents, B.
const ACCOUNT: u64 = 100;

/// A digest, B.
const DIGEST: u64 = 32;

/// Beside the digests in a message of a page: its frame, and a signature on that of repair symbols, B.
const PAGE: u64 = 128;

/// Opens a leg and closes it: the greeting with its pass, the answer, what is held already, goodbye.
const LEG: u64 = 4;

/// With the source, once: its offer and the answer; what the receiver needs of manifest and layout, and these; its
/// parents, what is expected of it, a ring's terms; how it ended.
const ONCE: u64 = 9;

/// The longest of those, B.
const LONG: u64 = 512;

/// How often nodes say what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control {
    /// Each receiver tells the source how it stands every so many s.
    pub account: f64,
    /// The source tells each that it is there every so many s.
    pub here: f64,
    /// A store that receives tells its children what came, at most every so many s and once a symbol.
    pub have: f64,
    /// A symbol: a child asks a store for each.
    pub symbol: ByteSize,
    /// A block.
    pub block: ByteSize,
}

impl Default for Control {
    fn default() -> Self {
        let (symbol, block) = (ByteSize::from_bytes(16 << 10), ByteSize::from_bytes(8 << 20));
        Self { account: 1.0, here: 5.0, have: 0.01, symbol, block }
    }
}

/// Messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// How many.
    pub messages: u64,
    /// With what is around them.
    pub bytes: u64,
}

impl Traffic {
    /// So many, of this length each.
    const fn of(messages: u64, length: u64) -> Self {
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

/// What a node sends and gets, but for data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Messages {
    /// With the source, about the cast: the offer, the manifest, how it stands, that it is there.
    pub with_source: Traffic,
    /// With its parent: pages, what it has, what is asked for, what is done, what is lacking.
    pub with_parent: Traffic,
    /// With its children.
    pub with_children: Traffic,
}

impl Messages {
    /// With the source and the parent.
    pub fn upward(&self) -> Traffic {
        self.with_source + self.with_parent
    }

    /// All of them.
    pub fn all(&self) -> Traffic {
        self.upward() + self.with_children
    }
}

impl Control {
    /// By node; `took[node]` is how long it received, s.
    pub(super) fn messages(
        &self,
        layout: &Layout,
        keeps: impl Fn(usize) -> Keeps,
        took: &[f64],
        length: ByteSize,
    ) -> Vec<Messages> {
        let mut messages = vec![Messages::default(); took.len()];
        let root = layout.order().first().copied();
        for parent in layout.order().iter().copied() {
            for child in layout.children(parent).iter().copied() {
                let seconds = (Some(parent) != root).then_some(took[parent].min(took[child]));
                let leg = match keeps(child) {
                    Keeps::Ring(_) => self.by_ring(length),
                    _ => self.by_asking(length, seconds),
                };
                messages[child].with_parent = leg;
                messages[parent].with_children += leg;
                messages[child].with_source = self.with_source(took[child]);
            }
        }
        messages
    }

    /// A leg on which each symbol is asked for, the parent receiving itself for so many `seconds`; not at all: it has
    /// all and says so once.
    fn by_asking(&self, length: ByteSize, seconds: Option<f64>) -> Traffic {
        let (symbols, blocks) = (parts(length, self.symbol), parts(length, self.block));
        let haves = seconds.map_or(1, |seconds| symbols.min(every(seconds, self.have)));
        // Pages: asked for and given.
        Traffic::of(LEG + symbols + haves + blocks, SHORT) + self.pages(blocks)
    }

    /// A leg that streams: of each block its page; that all was sent, what is lacking; the sheet of repair symbols and
    /// the word for it; that it is done. A leg that misses nothing says half of that.
    fn by_ring(&self, length: ByteSize) -> Traffic {
        let blocks = parts(length, self.block);
        // The first word ends what it has already. What is lacking are runs of symbols, an eighth of them here.
        let lacking = SHORT + parts(self.block, self.symbol) / 8 * 4;
        Traffic::of(LEG + 1 + 3 * blocks, SHORT)
            + Traffic::of(blocks, lacking)
            + self.pages(2 * blocks)
    }

    fn pages(&self, pages: u64) -> Traffic {
        Traffic::of(pages, PAGE + DIGEST * parts(self.block, self.symbol))
    }

    fn with_source(&self, took: f64) -> Traffic {
        let (accounts, heres) = (every(took, self.account), every(took, self.here));
        Traffic::of(ONCE, LONG) + Traffic::of(accounts, ACCOUNT) + Traffic::of(heres, SHORT)
    }
}

fn parts(of: ByteSize, part: ByteSize) -> u64 {
    of.as_bytes().div_ceil(part.as_bytes().max(1))
}

/// The first at once.
fn every(seconds: f64, period: f64) -> u64 {
    (seconds / period).ceil() as u64
}
