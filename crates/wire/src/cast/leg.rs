//! What child and parent say on a data leg.

use serde::{Deserialize, Serialize};

/// The most ranges of one message.
pub const MAX_RANGES: usize = 4096;

/// The longest wish in bytes.
pub const MAX_WISH: usize = 128 << 10;

/// Ranges of source symbols, ascending, each from the first up to before the second. A symbol's
/// number is block · K + ESI.
pub type Runs = Vec<(u64, u64)>;

/// Whether these are ascending, disjoint and not empty, all below `symbols`, and few enough.
pub fn are_sound(runs: &[(u64, u64)], symbols: u64) -> bool {
    let mut end = 0;
    let mut is_next = |&(from, to): &(u64, u64)| {
        let is_next = from >= end && to > from && to <= symbols;
        end = to;
        is_next
    };
    runs.len() <= MAX_RANGES && runs.iter().all(&mut is_next)
}

/// Whether all of these exist and none is empty, in whatever order, and they are few enough.
pub fn are_within(runs: &[(u64, u64)], symbols: u64) -> bool {
    runs.len() <= MAX_RANGES && runs.iter().all(|(from, to)| from < to && *to <= symbols)
}

/// How a child is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Want {
    /// It asks for symbols, and gets those.
    Pull,
    /// It gets whatever comes, as fast as its connection takes it, source and repair symbols.
    Stream,
}

/// Child to parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wish {
    /// These symbols, in this order of ranges; they need not ascend.
    Ask(Runs),
    /// The digests of a block's source symbols.
    Page(u32),
    /// The signed digests of a block's repair symbols.
    RepairPage(u32),
    /// These blocks need nothing any more: ranges of blocks.
    Done(Runs),
    /// Nothing more is wanted.
    Bye,
    /// Of a block that is streamed, all that came counted: the answer to [`Said::Spent`], or of
    /// use at the beginning.
    Lack {
        /// The block.
        block: u32,
        /// So many symbols more complete it, whichever of those that are lacking.
        need: u32,
        /// The source symbols that are lacking.
        runs: Runs,
    },
    /// What was said to be done is not any more: somebody came who has nothing.
    Anew,
    /// These are here from before: said once at the beginning, of use to a parent that tells of its
    /// symbols a part at a time.
    Hold(Runs),
}

/// Parent to child, besides symbols.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// These symbols are there now, besides those that were said before.
    Have(Runs),
    /// The digests of a block's source symbols, 32 bytes each: proven by the manifest.
    Page {
        /// The block.
        block: u32,
        /// Its digests, one behind the other.
        digests: Vec<u8>,
    },
    /// The signed digests of a block's repair symbols.
    RepairPage {
        /// The block.
        block: u32,
        /// As the source signed it.
        page: Vec<u8>,
    },
    /// These were asked for and are not here (any more).
    Gone(Runs),
    /// A page that is not here.
    NoPage(u32),
    /// It ends, for this reason.
    Bye(String),
    /// All is sent that was to be sent of this block for now: whoever is not done with it says
    /// what is lacking.
    Spent(u32),
}
