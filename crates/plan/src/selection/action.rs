//! What a selection tells its caller.

use super::Reason;
use std::ops::Range;
use thalweg_units::PathId;

/// What the caller must do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask for these bytes on this path, in this order; never while it still owes some.
    Fetch {
        /// The path to ask on.
        path: PathId,
        /// The bytes wanted: at least one range, none empty, ascending, ends exclusive, and
        /// between two of them a gap.
        ranges: Vec<Range<u64>>,
        /// Another path owes these bytes, too: whichever brings them first counts.
        hedge: bool,
    },
    /// Abandon what this path is fetching; bytes of it that were not reported
    /// to [`Selection::received`](super::Selection::received) belong to others from now on.
    Stop {
        /// The path to stop.
        path: PathId,
        /// True if it was given up for silence, false if its bytes are wanted no more.
        stalled: bool,
    },
    /// For the user's eyes: the rest comes over this path.
    Chosen {
        /// The path chosen; of several ([`Reason::Sum`]), the fastest.
        path: PathId,
        /// Why this one.
        reason: Reason,
    },
}

/// Where a selection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Every path fetches its own share.
    Sampling,
    /// One path fetches the rest, or several of which this is the fastest; `None` while
    /// no path can be asked: none has answered yet, or the server wants to be left alone.
    Completing(Option<PathId>),
    /// Every byte has been received.
    Done,
    /// Every path is dead and bytes are missing.
    Failed,
}
