//! The rest is planned anew when rates are not what was planned.

use super::{Steering, Way, balance::BETTER};
use std::collections::BTreeMap;

/// A graph with more legs is planned without sets of them: that is a linear program, and it must be over
/// long before the next interval.
pub(super) const MOST_LEGS: usize = 300;

impl Steering {
    /// Solves the fluid plan of what is left, with the legs as they were corrected and the sets that were
    /// learnt. Sources that end last try its ways before any others; nothing else is closed for it, as a way that
    /// carries something is better known than one that is planned. Where there is no plan, the old one stays.
    pub(super) fn replan(&mut self) {
        let mut planned: BTreeMap<Way, f64> = BTreeMap::new();
        for path in self.plan() {
            if let Some(way) = self.way(&path) {
                *planned.entry(way).or_default() += path.per_slot;
            }
        }
        if !planned.is_empty() {
            self.planned = planned;
            self.plans += 1;
        }
    }

    /// The way of the last plan that a source should try next, if it is worth it: it is not open and not
    /// benched, and promises clearly more than the one whose place it takes.
    pub(super) fn next_planned(&self, source: u32) -> Option<(Way, f64)> {
        let own = self.planned.iter().filter(|(way, _)| way.source == source);
        let free = own.filter(|(way, _)| self.may_open(way));
        let (way, rate) = free.max_by(|a, b| a.1.total_cmp(b.1))?;
        let is_full = self.of(source).count() >= self.settings.ways.max(1);
        let slowest = self.slowest(source).map_or(0.0, |open| open.rate());
        (!is_full || *rate > BETTER * slowest).then(|| (way.clone(), *rate))
    }
}
