//! The state that the records of a node's journal `held` give.

use super::{Record, admission::ActivePush, incomplete::IncompleteData};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use thalweg_wire::bistro::{ReceiptDelivery, StampId};

/// The maximum number of collected submissions whose receipts are kept, for clients that lost the reply to their push;
/// about 400 bytes each. Beyond it the oldest are forgotten.
const MAX_PAST_RECEIPTS: usize = 65_536;

/// The number of obsolete records that a journal may have without being compacted.
const MAX_OBSOLETE: usize = 1000;

/// The maximum number of ids in one record.
const IDS: usize = 1000;

/// The recorded state, and the pushes under way.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The submissions stored here.
    pub held: BTreeMap<StampId, StoredSubmission>,
    /// Those whose receipts the destination does not have yet.
    pub untold: BTreeSet<StampId>,
    /// Bytes of stored data, plus those that pushes under way may still add.
    pub bytes: u64,
    pub active_pushes: BTreeMap<StampId, ActivePush>,
    /// Incomplete data of interrupted pushes.
    pub incomplete: IncompleteData,
    /// Receipts of collected submissions.
    past: BTreeMap<StampId, Vec<u8>>,
    /// The ids in `past`, the oldest first.
    order: VecDeque<StampId>,
    /// The destination's signed refusals of receipts; at most [`MAX_PAST_RECEIPTS`].
    denied: BTreeMap<StampId, Vec<u8>>,
    /// The number of collected submissions, including forgotten ones.
    gone: u64,
}

/// A stored submission.
#[derive(Debug)]
pub(super) struct StoredSubmission {
    /// The message for the destination.
    pub delivery: ReceiptDelivery,
    /// The size of the data, bytes.
    pub bytes: u64,
}

/// The counts of a box's directory at a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolCounts {
    /// Submissions whose data is here.
    pub held: u64,
    pub bytes: u64,
    /// Those whose receipts the destination does not have yet.
    pub untold: u64,
    /// Those that the destination has collected.
    pub gone: u64,
}

impl State {
    /// Applies the records of a journal.
    pub fn replay(&mut self, records: &[Vec<u8>]) {
        for record in records.iter().filter_map(|record| Record::decode(record)) {
            self.apply(record);
        }
    }

    /// Applies one record.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Held { id, bytes, delivery } => {
                self.insert(id, StoredSubmission { delivery, bytes })
            }
            Record::Told(ids) => ids.iter().for_each(|id| _ = self.untold.remove(id)),
            Record::Gone(ids) => ids.iter().for_each(|id| self.mark_collected(id)),
            Record::Past(all) => {
                all.into_iter().for_each(|(id, receipt)| self.keep_receipt(id, receipt));
            }
            Record::Forgotten(count) => self.gone += count,
            Record::Denied(all) => all.into_iter().for_each(|(id, denial)| self.deny(id, denial)),
        }
    }

    fn insert(&mut self, id: StampId, held: StoredSubmission) {
        if !self.held.contains_key(&id) && !self.past.contains_key(&id) {
            self.bytes += held.bytes;
            self.held.insert(id, held);
            if !self.denied.contains_key(&id) {
                self.untold.insert(id);
            }
        }
    }

    fn mark_collected(&mut self, id: &StampId) {
        self.untold.remove(id);
        if let Some(held) = self.held.remove(id) {
            self.bytes -= held.bytes;
            self.keep_receipt(*id, held.delivery.receipt);
        }
    }

    fn keep_receipt(&mut self, id: StampId, receipt: Vec<u8>) {
        self.gone += 1;
        self.past.insert(id, receipt);
        self.order.push_back(id);
        if self.order.len() > MAX_PAST_RECEIPTS
            && let Some(oldest) = self.order.pop_front()
        {
            self.past.remove(&oldest);
        }
    }

    fn deny(&mut self, id: StampId, denial: Vec<u8>) {
        self.untold.remove(&id);
        self.denied.insert(id, denial);
        if self.denied.len() > MAX_PAST_RECEIPTS {
            self.denied.pop_first();
        }
    }

    /// The destination's denial of this receipt, signed.
    pub fn denial(&self, id: &StampId) -> Option<Vec<u8>> {
        self.denied.get(id).cloned()
    }

    /// The receipt of data that is or was stored here.
    pub fn receipt(&self, id: &StampId) -> Option<Vec<u8>> {
        let held = self.held.get(id).map(|held| &held.delivery.receipt);
        held.or_else(|| self.past.get(id)).cloned()
    }

    pub fn counts(&self) -> SpoolCounts {
        let (held, untold) = (self.held.len() as u64, self.untold.len() as u64);
        SpoolCounts { held, bytes: self.bytes, untold, gone: self.gone }
    }

    /// Whether most of these records are obsolete.
    pub fn is_worth_compacting(&self, records: &[Vec<u8>]) -> bool {
        records.len()
            > 2 * self.held.len() + (self.past.len() + self.denied.len()) / IDS + MAX_OBSOLETE
    }

    /// Returns the records of a compacted journal with the same state.
    pub fn records(&self) -> Vec<Vec<u8>> {
        let mut all = vec![Record::Forgotten(self.gone - self.past.len() as u64)];
        let receipt = |id: &StampId| Some((*id, self.past.get(id)?.clone()));
        let past: Vec<_> = self.order.iter().filter_map(receipt).collect();
        all.extend(past.chunks(IDS).map(|some| Record::Past(some.to_vec())));
        let held = |(id, held): (&StampId, &StoredSubmission)| Record::Held {
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
        StampId::from_encoded(&n.to_be_bytes())
    }

    fn held(n: u32) -> Record {
        let nonce = Nonce::from_bytes([0; 32]);
        let receipt = n.to_be_bytes().to_vec();
        let delivery = ReceiptDelivery { stamp: Vec::new(), receipt, nonce, path: Vec::new() };
        Record::Held { id: id(n), bytes: 10, delivery }
    }

    fn known(state: &State) -> (SpoolCounts, BTreeSet<StampId>, Vec<Option<Vec<u8>>>) {
        let known = |n| [state.receipt(&id(n)), state.denial(&id(n))];
        let receipts = (0..20).flat_map(known).collect();
        (state.counts(), state.untold.clone(), receipts)
    }

    #[test]
    fn receipts_of_collected_data_are_eventually_forgotten() {
        let mut state = State::default();
        let most = MAX_PAST_RECEIPTS as u32 + 100;
        for n in 0..most {
            state.apply(held(n));
            state.apply(Record::Told(vec![id(n)]));
            state.apply(Record::Gone(vec![id(n)]));
        }
        state.apply(held(most));
        assert_eq!(
            (state.held.len(), state.past.len(), state.order.len()),
            (1, MAX_PAST_RECEIPTS, MAX_PAST_RECEIPTS)
        );
        assert_eq!((state.receipt(&id(0)), state.receipt(&id(100)).is_some()), (None, true));
        let counts = SpoolCounts { held: 1, bytes: 10, untold: 1, gone: u64::from(most) };
        assert_eq!(state.counts(), counts);
        // Its journal is short and holds the same state.
        let records = state.records();
        assert!(records.len() < 70, "{}", records.len());
        let mut again = State::default();
        again.replay(&records);
        assert_eq!((again.counts(), again.order), (counts, state.order));
    }

    proptest! {
        #[test]
        fn a_compacted_journal_has_the_same_state(steps in prop::collection::vec((0_u32..20, 0..4), 0..60)) {
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
