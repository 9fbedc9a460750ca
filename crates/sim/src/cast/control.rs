//! Messages beside the data, by what the protocol says.

use serde::Serialize;
use thalweg_plan::tree::{Keeps, Layout};
use thalweg_units::ByteSize;

/// How often nodes say what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Control {
    /// Each receiver tells the source how it stands every so many s.
    pub status: f64,
    /// A store tells its children what it has every so many s.
    pub have: f64,
    /// A child asks a store for so much at a time.
    pub ask: ByteSize,
    /// A block: one page for it down each leg, one "done" up each leg from a ring.
    pub block: ByteSize,
}

impl Default for Control {
    fn default() -> Self {
        let (ask, block) = (ByteSize::from_bytes(1 << 20), ByteSize::from_bytes(8 << 20));
        Self { status: 2.0, have: 1.0, ask, block }
    }
}

/// Messages that a node sends and gets, but for data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Messages {
    /// With the source, about the cast: the offer, the manifest, how it stands.
    pub with_source: u64,
    /// With its parent: pages, what it has, what is asked for, what is done.
    pub with_parent: u64,
    /// With its children.
    pub with_children: u64,
}

impl Messages {
    /// With the source and the parent.
    pub const fn upward(&self) -> u64 {
        self.with_source + self.with_parent
    }

    /// All of them.
    pub const fn all(&self) -> u64 {
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
        let parts = |of: ByteSize| length.as_bytes().div_ceil(of.as_bytes().max(1));
        let mut messages = vec![Messages::default(); took.len()];
        let root = layout.order().first().copied();
        for parent in layout.order().iter().copied() {
            for child in layout.children(parent).iter().copied() {
                let every = |period: f64| (took[child] / period).ceil() as u64;
                let pages = parts(self.block);
                let leg = 1
                    + pages
                    + match keeps(parent) {
                        Keeps::Ring(_) if Some(parent) != root => parts(self.block),
                        _ => parts(self.ask) + every(self.have),
                    };
                messages[child].with_parent = leg;
                messages[parent].with_children += leg;
                messages[child].with_source = 2 + every(self.status);
            }
        }
        messages
    }
}
