//! Messages from a node to the parent that streams to it.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use thalweg_wire::cast::{ChildMessage, MAX_RANGES, Runs};
use tokio::sync::Notify;

/// The symbols that are missing of a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingSymbols {
    /// The number of further symbols that complete the block.
    pub need: u32,
    /// The missing source symbols, by their index in the object.
    pub runs: Runs,
}

impl MissingSymbols {
    /// Merges in what another child lacks. `need` is the maximum, since one symbol may serve both.
    pub fn merge(&mut self, other: &Self) {
        self.need = self.need.max(other.need);
        let mut all: Vec<(u64, u64)> = self.runs.iter().chain(&other.runs).copied().collect();
        all.sort_unstable();
        let mut runs: Runs = Vec::new();
        for (from, to) in all {
            match runs.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => runs.push((from, to)),
            }
        }
        runs.truncate(MAX_RANGES);
        self.runs = runs;
    }
}

/// Collects messages until the connection takes them. Bounded: a few numbers per block.
#[derive(Debug, Default)]
pub struct UpstreamQueue {
    inner: Mutex<Inner>,
    /// Notified when there is something to send.
    pub changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    is_anew: bool,
    done: BTreeSet<u32>,
    lacks: BTreeMap<u32, MissingSymbols>,
    pages: BTreeSet<u32>,
}

impl UpstreamQueue {
    /// A block needs no more symbols.
    pub fn finish(&self, block: u32) {
        let mut inner = self.inner.lock();
        inner.lacks.remove(&block);
        inner.done.insert(block);
        drop(inner);
        self.changed.notify_one();
    }

    /// Symbols of a block are missing; merged with an unsent message about the same block.
    pub fn report_missing(&self, block: u32, lack: &MissingSymbols) {
        self.inner.lock().lacks.entry(block).or_default().merge(lack);
        self.changed.notify_one();
    }

    /// The digests of a block's repair symbols are needed.
    pub fn request_page(&self, block: u32) {
        self.inner.lock().pages.insert(block);
        self.changed.notify_one();
    }

    /// A child without any symbols has joined below.
    pub fn restart(&self) {
        let mut inner = self.inner.lock();
        inner.is_anew = true;
        inner.done.clear();
        drop(inner);
        self.changed.notify_one();
    }

    /// Discards all messages.
    pub fn reset(&self) {
        *self.inner.lock() = Inner::default();
    }

    /// Takes all messages, in the order in which they are sent.
    pub fn take(&self) -> Vec<ChildMessage> {
        let Inner { is_anew, done, lacks, pages } = std::mem::take(&mut *self.inner.lock());
        let mut messages: Vec<ChildMessage> =
            is_anew.then_some(ChildMessage::RevokeDone).into_iter().collect();
        let runs = runs(done.into_iter());
        messages.extend(runs.chunks(MAX_RANGES).map(|runs| ChildMessage::Done(runs.to_vec())));
        let lack = |(block, lack): (u32, MissingSymbols)| {
            let MissingSymbols { need, runs } = lack;
            ChildMessage::Missing { block, need, runs }
        };
        messages.extend(lacks.into_iter().map(lack));
        messages.extend(pages.into_iter().map(ChildMessage::RepairPage));
        messages
    }
}

/// Joins ascending numbers to runs.
fn runs(numbers: impl Iterator<Item = u32>) -> Runs {
    let mut runs: Runs = Vec::new();
    for number in numbers.map(u64::from) {
        match runs.last_mut() {
            Some(last) if last.1 == number => last.1 += 1,
            _ => runs.push((number, number + 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacks_of_a_block_are_merged_and_done_blocks_lack_nothing() {
        let upstream = UpstreamQueue::default();
        [3, 4, 9].into_iter().for_each(|block| upstream.finish(block));
        upstream.report_missing(7, &MissingSymbols { need: 2, runs: vec![(10, 12), (20, 22)] });
        upstream.report_missing(7, &MissingSymbols { need: 3, runs: vec![(11, 13), (14, 15)] });
        upstream.report_missing(8, &MissingSymbols { need: 1, runs: vec![(30, 31)] });
        upstream.finish(8);
        upstream.request_page(5);
        let expected = [
            ChildMessage::Done(vec![(3, 5), (8, 10)]),
            ChildMessage::Missing { block: 7, need: 3, runs: vec![(10, 13), (14, 15), (20, 22)] },
            ChildMessage::RepairPage(5),
        ];
        assert_eq!(upstream.take(), expected);
        upstream.finish(1);
        upstream.restart();
        assert_eq!(upstream.take(), [ChildMessage::RevokeDone]);
    }
}
