//! What a source says that it has, and to whom, while parts of the object are with nobody else.
//!
//! A source that offers all to all sends some symbols to several children before it has sent others
//! at all, and then the fastest child waits for these, whatever its siblings could give it. So
//! children with several parents are at first each told of different symbols, a little ahead of what
//! they ask (what BitTorrent's clients call super-seeding, here without its round trip through a
//! second peer); once every symbol was told to somebody, all is told to all.

use crate::{geometry::Geometry, have::HaveSet};
use std::{collections::BTreeMap, ops::Range};

/// What is told at once, in bytes.
const UNIT_BYTES: u64 = 256 << 10;

/// The most that a child is told ahead of its asks: what a [`crate::Pull`] asks ahead at most.
const MOST_BYTES: u64 = 64 << 20;

/// A child, as long as it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeatId(u64);

/// What a child was told of and did not ask for yet.
#[derive(Clone, Debug)]
struct Seat {
    waiting: Vec<Range<u64>>,
    /// So many symbols it is told ahead.
    ahead: u64,
}

/// Who is told of what. Memory: a set of symbols, and some ranges a child.
#[derive(Clone, Debug)]
pub struct Reveal {
    unit: u64,
    most: u64,
    /// Symbols that somebody was told of, or holds.
    known: HaveSet,
    /// All before this is known.
    from: u64,
    seats: BTreeMap<SeatId, Seat>,
    joined: u64,
}

impl Reveal {
    /// Nobody was told of anything of this object.
    pub fn new(geometry: &Geometry) -> Self {
        let size = u64::from(geometry.symbol_bytes()).max(1);
        Self {
            unit: (UNIT_BYTES / size).max(1),
            most: (MOST_BYTES / size).max(1),
            known: HaveSet::empty(geometry),
            from: 0,
            seats: BTreeMap::new(),
            joined: 0,
        }
    }

    /// One more child.
    pub fn join(&mut self) -> SeatId {
        let id = SeatId(self.joined);
        self.joined += 1;
        self.seats.insert(id, Seat { waiting: Vec::new(), ahead: self.unit });
        id
    }

    /// A child is gone: what it was told of and did not ask for is told to another.
    pub fn leave(&mut self, id: SeatId) {
        let is_over = self.is_over();
        let Some(seat) = self.seats.remove(&id) else { return };
        if is_over {
            return;
        }
        for range in seat.waiting {
            self.from = self.from.min(range.start);
            self.known.remove_range(range);
        }
    }

    /// A child holds these symbols from before: its siblings can have them from it. What does not
    /// exist is passed over.
    pub fn holds(&mut self, id: SeatId, range: Range<u64>) {
        let end = range.end.min(self.known.symbols());
        // In the object, or not added.
        self.known.insert_range(range.start.min(end)..end).unwrap_or(0);
        self.asked(id, range);
    }

    /// A child asked for these symbols.
    pub fn asked(&mut self, id: SeatId, range: Range<u64>) {
        let Some(seat) = self.seats.get_mut(&id) else { return };
        let before = std::mem::take(&mut seat.waiting);
        let had_some = !before.is_empty();
        for waiting in before {
            let left = waiting.start..waiting.end.min(range.start);
            let right = waiting.start.max(range.end)..waiting.end;
            seat.waiting.extend([left, right].into_iter().filter(|part| part.start < part.end));
        }
        if had_some && seat.waiting.is_empty() {
            // It could have asked for more: a round trip holds more than was told.
            seat.ahead = (seat.ahead * 2).min(self.most);
        }
    }

    /// A child asks for nothing though it was told of something: it has come by that otherwise, and is
    /// told of twice as much next, without a bound: it may hold nearly all.
    pub fn idle(&mut self, id: SeatId) {
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.waiting.clear();
            seat.ahead = seat.ahead.saturating_mul(2);
        }
    }

    /// What a child is to be told of now; nothing if it has enough to ask for.
    pub fn tell(&mut self, id: SeatId) -> Vec<Range<u64>> {
        let mut told = Vec::new();
        let Some(seat) = self.seats.get(&id) else { return told };
        let waiting: u64 = seat.waiting.iter().map(|range| range.end - range.start).sum();
        let mut room = seat.ahead.saturating_sub(waiting);
        while room > 0 {
            let Some(range) = self.fresh(room.max(self.unit)) else { break };
            room = room.saturating_sub(range.end - range.start);
            told.push(range);
        }
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.waiting.extend(told.iter().cloned());
        }
        told
    }

    /// Whether somebody was told of each symbol: from then on, for good, all may be told to all.
    pub fn is_over(&self) -> bool {
        self.known.is_complete()
    }

    /// At most so many symbols of which nobody knows, one behind the other.
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

    fn reveal(length: u64) -> Reveal {
        Reveal::new(&Geometry::new(length, 16 << 10, 64, 8).unwrap())
    }

    fn one(range: Range<u64>) -> Vec<Range<u64>> {
        std::iter::once(range).collect()
    }

    fn count(ranges: &[Range<u64>]) -> u64 {
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    #[test]
    fn children_are_told_of_different_symbols_a_little_ahead() {
        let mut reveal = reveal(64 << 20);
        let (a, b) = (reveal.join(), reveal.join());
        let (first, second) = (reveal.tell(a), reveal.tell(b));
        assert_eq!((first, second), (one(0..16), one(16..32)));
        assert!(reveal.tell(a).is_empty());
        reveal.asked(a, 0..4);
        assert_eq!(count(&reveal.tell(a)), 16);
        assert!(!reveal.is_over());
    }

    #[test]
    fn who_asks_all_at_once_is_told_more_ahead() {
        let mut reveal = reveal(64 << 20);
        let a = reveal.join();
        for more in [16, 32, 64, 128] {
            let told = reveal.tell(a);
            assert_eq!(count(&told), more);
            told.into_iter().for_each(|range| reveal.asked(a, range));
        }
    }

    #[test]
    fn what_is_held_from_before_is_told_to_nobody_until_all_is_known() {
        let mut reveal = reveal(2 << 20);
        let (a, b) = (reveal.join(), reveal.join());
        reveal.holds(a, 0..100);
        let told = reveal.tell(b);
        assert_eq!(told, one(100..116));
        // It had what it asked for before it said so.
        reveal.holds(b, 100..110);
        assert_eq!(count(&reveal.tell(b)), 12);
        assert!(reveal.is_over());
    }

    #[test]
    fn who_came_by_much_otherwise_does_not_hold_it_up() {
        let mut reveal = reveal(20 << 30);
        let a = reveal.join();
        let calls = (1..100).find(|_| {
            reveal.tell(a);
            reveal.idle(a);
            reveal.is_over()
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
        /// Nobody who stays is told of what another who stays was told of, until it is over; and
        /// with one who asks on it comes to be over.
        #[test]
        fn nothing_is_told_twice_nor_kept(steps in prop::collection::vec(step(), 1..200)) {
            let mut reveal = reveal(30 << 20);
            let mut told: BTreeMap<SeatId, Vec<Range<u64>>> = BTreeMap::new();
            let mut asked: Vec<Range<u64>> = Vec::new();
            for step in steps {
                let at = |no: usize| told.keys().nth(no % told.len().max(1)).copied();
                match step {
                    Step::Join => drop(told.insert(reveal.join(), vec![])),
                    Step::Leave(no) => if let Some(id) = at(no) {
                        told.remove(&id);
                        reveal.leave(id);
                    },
                    Step::Ask(no) => if let Some(id) = at(no) {
                        let new = reveal.tell(id);
                        for range in &new {
                            let apart = |r: &Range<u64>| r.end <= range.start || range.end <= r.start;
                            prop_assert!(asked.iter().all(apart));
                            prop_assert!(told.values().flatten().all(apart));
                            reveal.asked(id, range.clone());
                        }
                        asked.extend(new);
                    },
                    Step::Idle(no) => if let Some(id) = at(no) {
                        let new = reveal.tell(id);
                        told.entry(id).or_default().extend(new.clone());
                        reveal.idle(id);
                        asked.extend(new);
                        told.insert(id, vec![]);
                    },
                }
            }
            told.keys().for_each(|id| reveal.leave(*id));
            let last = reveal.join();
            for _ in 0..5000 {
                for range in reveal.tell(last) {
                    reveal.asked(last, range);
                }
            }
            prop_assert!(reveal.is_over());
        }
    }
}
