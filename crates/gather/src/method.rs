//! How a collection is carried out.

use std::time::Duration;
use thalweg_plan::collection::{Direct, Rule};

/// The method; names are those of the paper's figures (§IV, §V).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Ours: rates instead of slots, re-planned as it goes.
    Fluid,
    /// A timetable by this rule: PathSyncX, PathDelay.
    Scheduled(Rule),
    /// Non-coordinated: each source by its own best path ([`Rule::Chain`]).
    BestPath,
    /// Each source sends to the destination itself.
    Direct(Direct),
}

impl Method {
    /// PathSync95, the paper's best.
    pub const PATH_SYNC_95: Self = Self::Scheduled(Rule::Sync(0.95));

    /// PathDelay with the plan's own slots.
    pub const fn path_delay(slot: Duration) -> Self {
        Self::Scheduled(Rule::Delay(slot))
    }
}
