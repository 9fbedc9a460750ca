//! What a node's book says, as it is now.

use super::{Record, parts::Parts, room::Receiving};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use thalweg_wire::bistro::{Delivery, StampId};

/// Submissions that were given away and whose receipts are still known, for clients that lost the
/// answer: about 400 bytes each. Beyond them the oldest are forgotten.
const PAST: usize = 65_536;

/// Records that a book may have although they say nothing any more.
const SPARE: usize = 1000;

/// Ids in one record.
const IDS: usize = 1000;

/// What the book says, and what is under way.
#[derive(Debug, Default)]
pub(super) struct State {
    /// What is here.
    pub held: BTreeMap<StampId, Held>,
    /// Of which the destination does not know yet.
    pub untold: BTreeSet<StampId>,
    /// Bytes of held data, and what pushes that are under way may still bring.
    pub bytes: u64,
    /// Pushes that are under way.
    pub receiving: BTreeMap<StampId, Receiving>,
    /// What others have left behind.
    pub parts: Parts,
    /// Receipts of what was given away.
    past: BTreeMap<StampId, Vec<u8>>,
    /// The same, the oldest first.
    order: VecDeque<StampId>,
    /// With what the destination has refused receipts; some of the last [`PAST`].
    denied: BTreeMap<StampId, Vec<u8>>,
    /// How many were given away, also those that are forgotten.
    gone: u64,
}

/// One submission.
#[derive(Debug)]
pub(super) struct Held {
    /// What the destination is to know.
    pub delivery: Delivery,
    /// How much data.
    pub bytes: u64,
}

/// What is in a box's directory at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolCounts {
    /// Submissions whose data is here.
    pub held: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those of which the destination does not know yet.
    pub untold: u64,
    /// Those that it has collected.
    pub gone: u64,
}

impl State {
    /// Takes what a book says.
    pub fn replay(&mut self, records: &[Vec<u8>]) {
        for record in records.iter().filter_map(|record| Record::decode(record)) {
            self.apply(record);
        }
    }

    /// Makes one record true.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Held { id, bytes, delivery } => self.hold(id, Held { delivery, bytes }),
            Record::Told(ids) => ids.iter().for_each(|id| _ = self.untold.remove(id)),
            Record::Gone(ids) => ids.iter().for_each(|id| self.give_away(id)),
            Record::Past(all) => {
                all.into_iter().for_each(|(id, receipt)| self.remember(id, receipt));
            }
            Record::Forgotten(count) => self.gone += count,
            Record::Denied(all) => all.into_iter().for_each(|(id, denial)| self.deny(id, denial)),
        }
    }

    fn hold(&mut self, id: StampId, held: Held) {
        if !self.held.contains_key(&id) && !self.past.contains_key(&id) {
            self.bytes += held.bytes;
            self.held.insert(id, held);
            if !self.denied.contains_key(&id) {
                self.untold.insert(id);
            }
        }
    }

    fn give_away(&mut self, id: &StampId) {
        self.untold.remove(id);
        if let Some(held) = self.held.remove(id) {
            self.bytes -= held.bytes;
            self.remember(*id, held.delivery.receipt);
        }
    }

    fn remember(&mut self, id: StampId, receipt: Vec<u8>) {
        self.gone += 1;
        self.past.insert(id, receipt);
        self.order.push_back(id);
        if self.order.len() > PAST
            && let Some(oldest) = self.order.pop_front()
        {
            self.past.remove(&oldest);
        }
    }

    fn deny(&mut self, id: StampId, denial: Vec<u8>) {
        self.untold.remove(&id);
        self.denied.insert(id, denial);
        if self.denied.len() > PAST {
            self.denied.pop_first();
        }
    }

    /// With what the destination has refused the receipt of this.
    pub fn denial(&self, id: &StampId) -> Option<Vec<u8>> {
        self.denied.get(id).cloned()
    }

    /// The receipt of what is or was here.
    pub fn receipt(&self, id: &StampId) -> Option<Vec<u8>> {
        let held = self.held.get(id).map(|held| &held.delivery.receipt);
        held.or_else(|| self.past.get(id)).cloned()
    }

    /// How many of what.
    pub fn counts(&self) -> SpoolCounts {
        let (held, untold) = (self.held.len() as u64, self.untold.len() as u64);
        SpoolCounts { held, bytes: self.bytes, untold, gone: self.gone }
    }

    /// Whether a book of these records is mostly of what is over.
    pub fn is_worth_compacting(&self, records: &[Vec<u8>]) -> bool {
        records.len() > 2 * self.held.len() + (self.past.len() + self.denied.len()) / IDS + SPARE
    }

    /// A book that says the same.
    pub fn records(&self) -> Vec<Vec<u8>> {
        let mut all = vec![Record::Forgotten(self.gone - self.past.len() as u64)];
        let receipt = |id: &StampId| Some((*id, self.past.get(id)?.clone()));
        let past: Vec<_> = self.order.iter().filter_map(receipt).collect();
        all.extend(past.chunks(IDS).map(|some| Record::Past(some.to_vec())));
        let held = |(id, held): (&StampId, &Held)| Record::Held {
            id: *id,
            bytes: held.bytes,
            delivery: held.delivery.clone(),
        };
        all.extend(self.held.iter().map(held));
        let told: Vec<StampId> =
            self.held.keys().filter(|id| !self.untold.contains(*id)).copied().collect();
        all.extend(told.chunks(IDS).map(|some| Record::Told(some.to_vec())));
        let denied: Vec<_> = self.denied.iter().map(|(id, denial)| (*id, denial.clone())).collect();
        all.extend(denied.chunks(IDS).map(|some| Record::Denied(some.to_vec())));
        all.iter().map(Record::encode).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thalweg_wire::bistro::Nonce;

    fn id(n: u32) -> StampId {
        StampId::of_bytes(&n.to_be_bytes())
    }

    fn held(n: u32) -> Record {
        let nonce = Nonce::from_bytes([0; 32]);
        let receipt = n.to_be_bytes().to_vec();
        let delivery = Delivery { stamp: Vec::new(), receipt, nonce, path: Vec::new() };
        Record::Held { id: id(n), bytes: 10, delivery }
    }

    fn known(state: &State) -> (SpoolCounts, BTreeSet<StampId>, Vec<Option<Vec<u8>>>) {
        let known = |n| [state.receipt(&id(n)), state.denial(&id(n))];
        let receipts = (0..20).flat_map(known).collect();
        (state.counts(), state.untold.clone(), receipts)
    }

    #[test]
    fn what_was_given_away_is_forgotten_in_the_end() {
        let mut state = State::default();
        let most = PAST as u32 + 100;
        for n in 0..most {
            state.apply(held(n));
            state.apply(Record::Told(vec![id(n)]));
            state.apply(Record::Gone(vec![id(n)]));
        }
        state.apply(held(most));
        assert_eq!((state.held.len(), state.past.len(), state.order.len()), (1, PAST, PAST));
        assert_eq!((state.receipt(&id(0)), state.receipt(&id(100)).is_some()), (None, true));
        let counts = SpoolCounts { held: 1, bytes: 10, untold: 1, gone: u64::from(most) };
        assert_eq!(state.counts(), counts);
        // Its book is short, and says the same.
        let records = state.records();
        assert!(records.len() < 70, "{}", records.len());
        let mut again = State::default();
        again.replay(&records);
        assert_eq!((again.counts(), again.order), (counts, state.order));
    }

    proptest! {
        #[test]
        fn a_compacted_book_says_the_same(steps in prop::collection::vec((0_u32..20, 0..4), 0..60)) {
            let mut state = State::default();
            for (n, step) in steps {
                state.apply(match step {
                    0 => held(n),
                    1 => Record::Told(vec![id(n)]),
                    2 => Record::Denied(vec![(id(n), vec![1])]),
                    _ => Record::Gone(vec![id(n)]),
                });
            }
            let mut again = State::default();
            again.replay(&state.records());
            prop_assert_eq!(known(&again), known(&state));
        }
    }
}
