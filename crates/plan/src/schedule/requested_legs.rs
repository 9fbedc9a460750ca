//! Records the legs that were asked for and are not measured yet.

use super::{Pair, ScheduleInput};
use std::collections::BTreeSet;

/// The legs that a schedule asked for, until they are measured or excluded: it must neither ask for them twice nor wait
/// for them.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestedLegs {
    asked: BTreeSet<Pair>,
}

impl RequestedLegs {
    /// Forgets the legs that are measured or excluded by now.
    pub(super) fn settle(&mut self, known: &ScheduleInput<'_>) {
        let open = |&(i, j): &Pair| {
            i.max(j) < known.graph.nodes()
                && known.graph.rate(i, j).is_none()
                && !known.excluded.contains((i, j))
        };
        self.asked.retain(open);
    }

    /// The legs that are asked for and not measured.
    pub(super) const fn asked(&self) -> &BTreeSet<Pair> {
        &self.asked
    }

    /// Whether the leg is measured or asked for.
    pub(super) fn covers(&self, known: &ScheduleInput<'_>, (i, j): Pair) -> bool {
        known.graph.rate(i, j).is_some() || self.asked.contains(&(i, j))
    }

    /// Whether the leg may be asked for.
    pub(super) fn is_free(&self, known: &ScheduleInput<'_>, pair: Pair) -> bool {
        pair.0 != pair.1 && !self.covers(known, pair) && !known.excluded.contains(pair)
    }

    /// The number of legs that are measured or asked for.
    pub(super) fn covered_count(&self, known: &ScheduleInput<'_>) -> usize {
        known.graph.measured() + self.asked.len()
    }

    /// Whether this share of all paths, 0 to 1, is measured or asked for.
    pub(super) fn reaches_share(&self, known: &ScheduleInput<'_>, share: f64) -> bool {
        let n = known.graph.nodes();
        let all = n * n.saturating_sub(1);
        // Slightly less, so that 0.3 · 90 does not ask for 28 legs.
        self.covered_count(known) as f64 >= share * all as f64 - 1e-6
    }

    /// Records the legs that are asked for now, and returns them.
    pub(super) fn ask(&mut self, pairs: Vec<Pair>) -> Vec<Pair> {
        self.asked.extend(&pairs);
        pairs
    }
}
