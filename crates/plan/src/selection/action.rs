//! The actions that a selection asks of its caller, and its phases.

use super::Reason;
use std::ops::Range;
use thalweg_units::PathId;

/// What the caller must do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask for these bytes on this path, in this order. Never issued while the path still owes bytes.
    Fetch {
        /// The path to ask on.
        path: PathId,
        /// The wanted bytes: at least one range, none empty, ascending, ends exclusive, with a gap between any two.
        ranges: Vec<Range<u64>>,
        /// Whether another path owes these bytes too; the first to deliver them counts.
        hedge: bool,
    },
    /// Abandon what this path is fetching. Its bytes that were not reported to
    /// [`Selection::received`](super::Selection::received) belong to other paths from now on.
    Stop {
        /// The path to stop.
        path: PathId,
        /// True if the path was given up for silence, false if its bytes are no longer wanted.
        stalled: bool,
    },
    /// For the user: the rest comes over this path.
    Chosen {
        /// The chosen path; of several ([`Reason::Sum`]), the fastest.
        path: PathId,
        /// Why this path was chosen.
        reason: Reason,
    },
}

/// The phase of a selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Every path fetches its own share.
    Sampling,
    /// One path fetches the rest, or several of which this is the fastest; `None` while no path can be asked, because
    /// none has answered yet or the server wants to be left alone.
    Completing(Option<PathId>),
    /// Every byte has been received.
    Done,
    /// Every path is dead and bytes are missing.
    Failed,
}
