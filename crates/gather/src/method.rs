//! The methods by which a collection can be carried out.

use std::time::Duration;
use thalweg_plan::collection::{Direct, Rule};

/// The method of a collection. The names are those of the paper's figures (§IV, §V).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Our own method: rates instead of slots, replanned during the transfer.
    Fluid,
    /// A timetable with this release rule: PathSyncX or PathDelay.
    Scheduled(Rule),
    /// The paper's non-coordinated method: each source uses its own best path ([`Rule::Chain`]).
    BestPath,
    /// Each source sends directly to the destination.
    Direct(Direct),
}

impl Method {
    /// PathSync95, which performs best in the paper.
    pub const PATH_SYNC_95: Self = Self::Scheduled(Rule::Sync(0.95));

    /// PathDelay with the plan's own slot length.
    pub const fn path_delay(slot: Duration) -> Self {
        Self::Scheduled(Rule::Delay(slot))
    }
}
