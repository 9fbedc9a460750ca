//! Which interfaces may be used now.

use super::{Present, Table};
use std::{collections::BTreeSet, time::Duration};
use thalweg_bond::{Application, Linkable, Tier, allowed, linked};
use thalweg_units::{Time, WallTime};

/// The primary interfaces are full when what is under way on each takes longer than this.
const FULL: Duration = Duration::from_secs(10);

impl Table {
    /// The interfaces that a bond's links go by, by index, where it reaches nobody by those of `fails`.
    pub fn for_links(&self, fails: &BTreeSet<u32>, now: Time, today: WallTime) -> Vec<u32> {
        let of = |present: &Present| {
            let serves = self.doubts.of(present.index, now).is_none();
            Linkable {
                tier: self.tier_of_links(&present.name),
                is_usable: serves && self.has_left_for_link(&present.name, today),
                fails: fails.contains(&present.index),
            }
        };
        let all: Vec<_> = self.present.iter().map(of).collect();
        linked(&all).into_iter().map(|at| self.present[at].index).collect()
    }

    /// The interfaces that what no bond carries may go by, by index: as links may, and where all of those are in doubt,
    /// these all the same.
    pub fn for_plain(&self, now: Time, today: WallTime) -> Vec<u32> {
        let meant = self.for_links(&BTreeSet::new(), now, today);
        if !meant.is_empty() {
            return meant;
        }
        let may = |present: &&Present| {
            let is_never = self.settings.policy(&present.name).tier == Tier::Never;
            !is_never && self.has_left_for_link(&present.name, today)
        };
        self.present.iter().filter(may).map(|present| present.index).collect()
    }

    /// All that are usable, by index.
    pub fn indices(&self) -> BTreeSet<u32> {
        self.present.iter().map(|present| present.index).collect()
    }

    /// How many interfaces links may ever go by now, whatever fails.
    pub fn count_for_links(&self, today: WallTime) -> usize {
        let may = |present: &&Present| {
            let is_never = self.settings.policy(&present.name).tier == Tier::Never;
            !is_never && self.has_left_for_link(&present.name, today)
        };
        self.present.iter().filter(may).count()
    }

    /// The places in `present` that this connection may go by, and those that are left if none of
    /// them brings it about: what is in doubt, and lower tiers.
    pub(super) fn usable(
        &self,
        application: &Application,
        to: &str,
        now: Time,
        today: WallTime,
    ) -> (Vec<usize>, Vec<usize>) {
        let names: Vec<&str> = self.present.iter().map(|p| p.name.as_str()).collect();
        let mut ruled = self.settings.rules.filter(application, to, &names);
        let policy = |at: usize| self.settings.policy(names[at]);
        ruled.retain(|at| policy(*at).tier != Tier::Never && self.has_left(names[*at], today));
        ruled.sort_by_key(|at| policy(*at).tier);
        let serves = |at: usize| self.doubts.of(self.present[at].index, now).is_none();
        let primary = |at: &&usize| policy(**at).tier == Tier::Primary && serves(**at);
        let is_full = ruled.iter().filter(primary).all(|at| self.is_full(*at));
        let of = |serves: &dyn Fn(usize) -> bool| {
            let policies: Vec<_> = ruled.iter().map(|at| (policy(*at), serves(*at))).collect();
            allowed(&policies, is_full).into_iter().map(|at| ruled[at]).collect::<Vec<_>>()
        };
        let mut first = of(&serves);
        if first.is_empty() {
            // Where nothing else is left, what is in doubt is tried all the same.
            first = of(&|_| true);
        }
        let last = ruled.iter().copied().filter(|at| !first.contains(at)).collect();
        (first, last)
    }

    fn is_full(&self, at: usize) -> bool {
        let candidate = self.candidate(at);
        let room = candidate.rate.bytes_in(FULL).as_bytes();
        room > 0 && candidate.load > room
    }
}
