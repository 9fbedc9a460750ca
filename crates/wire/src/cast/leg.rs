//! The messages between child and parent on a data leg.

use serde::{Deserialize, Serialize};

/// The maximum number of ranges in one message.
pub const MAX_RANGES: usize = 4096;

/// The longest [`ChildMessage`], bytes.
pub const MAX_CHILD_MESSAGE: usize = 128 << 10;

/// Half-open ranges of source symbols, ascending. The number of a symbol is block · K + ESI.
pub type Runs = Vec<(u64, u64)>;

/// Whether the ranges are ascending, disjoint, not empty, below `symbols`, and at most [`MAX_RANGES`].
pub fn are_sound(runs: &[(u64, u64)], symbols: u64) -> bool {
    let mut end = 0;
    let mut is_next = |&(from, to): &(u64, u64)| {
        let is_next = from >= end && to > from && to <= symbols;
        end = to;
        is_next
    };
    runs.len() <= MAX_RANGES && runs.iter().all(&mut is_next)
}

/// Whether the ranges, in any order, are not empty, below `symbols`, and at most [`MAX_RANGES`].
pub fn are_within(runs: &[(u64, u64)], symbols: u64) -> bool {
    runs.len() <= MAX_RANGES && runs.iter().all(|(from, to)| from < to && *to <= symbols)
}

/// How a parent serves a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServiceMode {
    /// The parent sends the symbols that the child requests.
    Pull,
    /// The parent sends all source and repair symbols as they arrive, as fast as the connection allows.
    Stream,
}

/// A message from child to parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChildMessage {
    /// Requests these symbols in the order of the ranges, which need not ascend.
    Request(Runs),
    /// Requests the digests of a block's source symbols.
    Page(u32),
    /// Requests the signed digests of a block's repair symbols.
    RepairPage(u32),
    /// The child needs no more symbols of these blocks; ranges of blocks.
    Done(Runs),
    /// The child needs nothing more.
    Bye,
    /// The missing symbols of a streamed block, counting all symbols that have arrived. The reply to
    /// [`ParentMessage::BlockSent`]; also sent at the beginning.
    Missing {
        /// The number of the block.
        block: u32,
        /// The number of further symbols that complete the block, whichever of the missing ones.
        need: u32,
        /// The missing source symbols.
        runs: Runs,
    },
    /// Revokes all earlier `Done` messages: a node without any symbols has joined below the child.
    RevokeDone,
    /// The child has these symbols from an earlier session. Sent once at the beginning, for parents that announce their
    /// symbols a part at a time.
    Held(Runs),
}

/// A message from parent to child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParentMessage {
    /// The parent has these symbols, in addition to those announced before.
    Have(Runs),
    /// The digests of a block's source symbols, which the manifest verifies.
    Page {
        /// The number of the block.
        block: u32,
        /// The digests, 32 bytes each.
        digests: Vec<u8>,
    },
    /// The signed digests of a block's repair symbols.
    RepairPage {
        /// The number of the block.
        block: u32,
        /// The encoded `Signed<RepairSheet>`.
        page: Vec<u8>,
    },
    /// The parent does not have these requested symbols (any more).
    Unavailable(Runs),
    /// The parent does not have the digests of this block.
    NoPage(u32),
    /// The parent ends the leg for this reason.
    Bye(String),
    /// The parent has sent all symbols of this block that it is to send for now. A child that has not completed the
    /// block replies with [`ChildMessage::Missing`].
    BlockSent(u32),
}
