//! Which symbols a source announces to which child while parts of the object are only at the source.
//!
//! If a source announced everything to all children, it would send some symbols to several children before it had sent
//! others at all; then the fastest child would wait for these, because no sibling has them. So children with several
//! parents are first told about different symbols, slightly ahead of their requests. (BitTorrent clients call this
//! super-seeding; here it takes no round trip through a second peer.) Once every symbol has been announced to some
//! child, everything is announced to all.

use crate::{geometry::Geometry, have::HaveSet};
use std::{collections::BTreeMap, ops::Range};

/// Bytes announced at once.
const UNIT_BYTES: u64 = 256 << 10;

/// The maximum announced ahead of a child's requests, in bytes: the maximum that a [`crate::Pull`] requests ahead.
const MAX_AHEAD_BYTES: u64 = 64 << 20;

/// A child for the duration of its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildConnectionId(u64);

/// The symbols announced to a child that it has not requested yet.
#[derive(Clone, Debug)]
struct AnnouncedChild {
    waiting: Vec<Range<u64>>,
    /// The number of symbols announced ahead.
    ahead: u64,
}

/// Decides which symbols are announced to which child. Memory: a set of symbols, and some ranges per child.
#[derive(Clone, Debug)]
pub struct AnnouncementScheduler {
    unit: u64,
    most: u64,
    /// Symbols that were announced to a child, or that a child holds.
    known: HaveSet,
    /// All symbols before this are known.
    from: u64,
    children: BTreeMap<ChildConnectionId, AnnouncedChild>,
    joined: u64,
}

impl AnnouncementScheduler {
    /// Creates the state in which nothing has been announced.
    pub fn new(geometry: &Geometry) -> Self {
        let size = u64::from(geometry.symbol_bytes()).max(1);
        Self {
            unit: (UNIT_BYTES / size).max(1),
            most: (MAX_AHEAD_BYTES / size).max(1),
            known: HaveSet::empty(geometry),
            from: 0,
            children: BTreeMap::new(),
            joined: 0,
        }
    }

    /// Adds a child, to which nothing has been announced.
    pub fn join(&mut self) -> ChildConnectionId {
        let id = ChildConnectionId(self.joined);
        self.joined += 1;
        self.children.insert(id, AnnouncedChild { waiting: Vec::new(), ahead: self.unit });
        id
    }

    /// Removes a child. Symbols that were announced to it and that it did not request are announced to another one.
    pub fn leave(&mut self, id: ChildConnectionId) {
        let is_over = self.is_over();
        let Some(child) = self.children.remove(&id) else { return };
        if is_over {
            return;
        }
        for range in child.waiting {
            self.from = self.from.min(range.start);
            self.known.remove_range(range);
        }
    }

    /// Records that a child already holds these symbols, so that its siblings can get them from it. Symbols that do not
    /// exist are ignored.
    pub fn record_held(&mut self, id: ChildConnectionId, range: Range<u64>) {
        let end = range.end.min(self.known.symbols());
        // Cannot fail: the range is clipped to the object.
        self.known.insert_range(range.start.min(end)..end).unwrap_or(0);
        self.record_request(id, range);
    }

    /// Records that a child requested these symbols.
    pub fn record_request(&mut self, id: ChildConnectionId, range: Range<u64>) {
        let Some(child) = self.children.get_mut(&id) else { return };
        let before = std::mem::take(&mut child.waiting);
        let had_some = !before.is_empty();
        for waiting in before {
            let left = waiting.start..waiting.end.min(range.start);
            let right = waiting.start.max(range.end)..waiting.end;
            child.waiting.extend([left, right].into_iter().filter(|part| part.start < part.end));
        }
        if had_some && child.waiting.is_empty() {
            // The child could have requested more: its round trip takes more symbols than were announced.
            child.ahead = (child.ahead * 2).min(self.most);
        }
    }

    /// Records that a child requests nothing although symbols were announced to it: it has got them otherwise. The next
    /// announcement is twice as large, without a bound, because it may hold nearly everything.
    pub fn record_idle(&mut self, id: ChildConnectionId) {
        if let Some(child) = self.children.get_mut(&id) {
            child.waiting.clear();
            child.ahead = child.ahead.saturating_mul(2);
        }
    }

    /// The symbols to announce to a child now; empty if it has enough to request.
    pub fn announce(&mut self, id: ChildConnectionId) -> Vec<Range<u64>> {
        let mut told = Vec::new();
        let Some(child) = self.children.get(&id) else { return told };
        let waiting: u64 = child.waiting.iter().map(|range| range.end - range.start).sum();
        let mut room = child.ahead.saturating_sub(waiting);
        while room > 0 {
            let Some(range) = self.fresh(room.max(self.unit)) else { break };
            room = room.saturating_sub(range.end - range.start);
            told.push(range);
        }
        if let Some(child) = self.children.get_mut(&id) {
            child.waiting.extend(told.iter().cloned());
        }
        told
    }

    /// Whether every symbol has been announced to some child. From then on, for good, everything may be announced to
    /// all.
    pub fn is_over(&self) -> bool {
        self.known.is_complete()
    }

    /// At most `most` consecutive symbols that are not known.
    fn fresh(&mut self, most: u64) -> Option<Range<u64>> {
        let run = self.known.missing_from(self.from).next()?;
        let range = run.start..run.end.min(run.start + most);
        self.known.insert_range(range.clone()).ok()?;
        self.from = range.end;
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn scheduler(length: u64) -> AnnouncementScheduler {
        AnnouncementScheduler::new(&Geometry::new(length, 16 << 10, 64, 8).unwrap())
    }

    fn one(range: Range<u64>) -> Vec<Range<u64>> {
        std::iter::once(range).collect()
    }

    fn count(ranges: &[Range<u64>]) -> u64 {
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    #[test]
    fn children_are_told_of_different_symbols_a_little_ahead() {
        let mut scheduler = scheduler(64 << 20);
        let (a, b) = (scheduler.join(), scheduler.join());
        let (first, second) = (scheduler.announce(a), scheduler.announce(b));
        assert_eq!((first, second), (one(0..16), one(16..32)));
        assert!(scheduler.announce(a).is_empty());
        scheduler.record_request(a, 0..4);
        assert_eq!(count(&scheduler.announce(a)), 16);
        assert!(!scheduler.is_over());
    }

    #[test]
    fn a_child_that_requests_everything_at_once_is_told_more_ahead() {
        let mut scheduler = scheduler(64 << 20);
        let a = scheduler.join();
        for more in [16, 32, 64, 128] {
            let told = scheduler.announce(a);
            assert_eq!(count(&told), more);
            told.into_iter().for_each(|range| scheduler.record_request(a, range));
        }
    }

    #[test]
    fn held_symbols_are_not_announced_until_everything_is_known() {
        let mut scheduler = scheduler(2 << 20);
        let (a, b) = (scheduler.join(), scheduler.join());
        scheduler.record_held(a, 0..100);
        let told = scheduler.announce(b);
        assert_eq!(told, one(100..116));
        // It requested these before it reported that it holds them.
        scheduler.record_held(b, 100..110);
        assert_eq!(count(&scheduler.announce(b)), 12);
        assert!(scheduler.is_over());
    }

    #[test]
    fn a_child_that_has_most_symbols_does_not_delay_the_end() {
        let mut scheduler = scheduler(20 << 30);
        let a = scheduler.join();
        let calls = (1..100).find(|_| {
            scheduler.announce(a);
            scheduler.record_idle(a);
            scheduler.is_over()
        });
        assert!(calls.is_some_and(|calls| calls < 20), "{calls:?}");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Join,
        Leave(usize),
        Ask(usize),
        Idle(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            1 => Just(Step::Join),
            1 => (0..6usize).prop_map(Step::Leave),
            6 => (0..6usize).prop_map(Step::Ask),
            1 => (0..6usize).prop_map(Step::Idle),
        ]
    }

    proptest! {
        /// Until the end, no symbol is announced to two children that stay. With one child that keeps requesting, the
        /// end is reached.
        #[test]
        fn each_symbol_is_announced_once(steps in prop::collection::vec(step(), 1..200)) {
            let mut scheduler = scheduler(30 << 20);
            let mut told: BTreeMap<ChildConnectionId, Vec<Range<u64>>> = BTreeMap::new();
            let mut asked: Vec<Range<u64>> = Vec::new();
            for step in steps {
                let at = |no: usize| told.keys().nth(no % told.len().max(1)).copied();
                match step {
                    Step::Join => drop(told.insert(scheduler.join(), vec![])),
                    Step::Leave(no) => if let Some(id) = at(no) {
                        told.remove(&id);
                        scheduler.leave(id);
                    },
                    Step::Ask(no) => if let Some(id) = at(no) {
                        let new = scheduler.announce(id);
                        for range in &new {
                            let apart = |r: &Range<u64>| r.end <= range.start || range.end <= r.start;
                            prop_assert!(asked.iter().all(apart));
                            prop_assert!(told.values().flatten().all(apart));
                            scheduler.record_request(id, range.clone());
                        }
                        asked.extend(new);
                    },
                    Step::Idle(no) => if let Some(id) = at(no) {
                        let new = scheduler.announce(id);
                        told.entry(id).or_default().extend(new.clone());
                        scheduler.record_idle(id);
                        asked.extend(new);
                        told.insert(id, vec![]);
                    },
                }
            }
            told.keys().for_each(|id| scheduler.leave(*id));
            let last = scheduler.join();
            for _ in 0..5000 {
                for range in scheduler.announce(last) {
                    scheduler.record_request(last, range);
                }
            }
            prop_assert!(scheduler.is_over());
        }
    }
}
