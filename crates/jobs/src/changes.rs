//! The log of changes that readers of events follow.

use crate::job::{Job, PathProgress};
use parking_lot::Mutex;
use serde_json::Value;
use std::{collections::VecDeque, fmt, str::FromStr};
use thiserror::Error;
use tokio::sync::watch;

/// The most changes that are kept: some minutes of a busy daemon. A reader that is further behind fetches all again.
const MAX_CHANGES: usize = 4096;

/// The most bytes of changes that are kept; a job with many receivers has 100 kB.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The number of a change, and the run of the daemon that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeId {
    /// Random for each run of the daemon.
    pub run: u64,
    /// From 1; 0 is before the first change.
    pub number: u64,
}

/// Changes after this one are no longer known, or it is of another run: everything has to be fetched again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the changes since then are no longer known")]
pub struct Reset;

/// A change of the list of jobs.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A job is new or has changed.
    Job(Box<Job>),
    /// The command of a job reported an event other than progress.
    JobEvent { id: u64, event: Value },
    /// A job was forgotten.
    JobRemoved { id: u64 },
}

/// The last changes, and a signal for readers.
#[derive(Debug)]
pub struct ChangeLog {
    run: u64,
    kept: Mutex<Kept>,
    last: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The changes and their sizes in bytes; the last one has the number in `last`.
    changes: VecDeque<(Change, usize)>,
    bytes: usize,
}

impl ChangeLog {
    pub fn new(run: u64) -> Self {
        Self { run, kept: Mutex::default(), last: watch::Sender::new(0) }
    }

    /// The last change.
    pub fn last(&self) -> ChangeId {
        ChangeId { run: self.run, number: *self.last.borrow() }
    }

    /// Appends a change. The caller holds the lock of what has changed, so that changes are in its order.
    pub fn push(&self, change: Change) {
        let bytes = change.bytes();
        let mut kept = self.kept.lock();
        kept.changes.push_back((change, bytes));
        kept.bytes += bytes;
        while kept.changes.len() > MAX_CHANGES || (kept.bytes > MAX_BYTES && kept.changes.len() > 1)
        {
            let Some((_, bytes)) = kept.changes.pop_front() else { break };
            kept.bytes -= bytes;
        }
        self.last.send_modify(|last| *last += 1);
    }

    /// The changes after `from`; waits until there is one.
    pub async fn after(&self, from: ChangeId) -> Result<Vec<(ChangeId, Change)>, Reset> {
        let mut last = self.last.subscribe();
        loop {
            let changes = self.known_after(from)?;
            if !changes.is_empty() {
                return Ok(changes);
            }
            if last.wait_for(|last| *last > from.number).await.is_err() {
                return Err(Reset);
            }
        }
    }

    fn known_after(&self, from: ChangeId) -> Result<Vec<(ChangeId, Change)>, Reset> {
        let kept = self.kept.lock();
        let last = *self.last.borrow();
        let oldest = last - kept.changes.len() as u64;
        if from.run != self.run || from.number > last || from.number < oldest {
            return Err(Reset);
        }
        let skipped = usize::try_from(from.number - oldest).unwrap_or(usize::MAX);
        let id = |i: usize| ChangeId { run: self.run, number: oldest + i as u64 + 1 };
        let rest = kept.changes.iter().enumerate().skip(skipped);
        Ok(rest.map(|(i, (change, _))| (id(i), change.clone())).collect())
    }
}

impl Change {
    /// About its size in memory.
    fn bytes(&self) -> usize {
        match self {
            Self::Job(job) => {
                let arguments: usize = job.arguments.iter().map(|a| 3 * a.len()).sum();
                let state = |path: &PathProgress| path.state.as_ref().map_or(0, String::len);
                let paths = job.paths.iter().map(|path| 64 + path.path.len() + state(path));
                let receivers = job.receivers.iter().map(|r| 64 + r.name.len() + r.state.len());
                let error = job.error.as_ref().map_or(0, String::len);
                512 + arguments + error + paths.chain(receivers).sum::<usize>()
            }
            Self::JobEvent { event, .. } => 64 + json_bytes(event),
            Self::JobRemoved { .. } => 64,
        }
    }
}

/// About the memory of a JSON value.
pub fn json_bytes(value: &Value) -> usize {
    32 + match value {
        Value::String(text) => text.len(),
        Value::Array(all) => all.iter().map(json_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(name, v)| name.len() + json_bytes(v)).sum(),
        _ => 0,
    }
}

impl fmt::Display for ChangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run, self.number)
    }
}

impl FromStr for ChangeId {
    type Err = Reset;

    fn from_str(text: &str) -> Result<Self, Reset> {
        let (run, number) = text.split_once('-').ok_or(Reset)?;
        let parse = |text: &str| text.parse().map_err(|_| Reset);
        Ok(Self { run: parse(run)?, number: parse(number)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(id: u64) -> Change {
        Change::JobRemoved { id }
    }

    fn at(number: u64) -> ChangeId {
        ChangeId { run: 7, number }
    }

    #[tokio::test]
    async fn a_reader_gets_each_change_once_and_in_order() {
        let log = ChangeLog::new(7);
        let start = log.last();
        (1..=3).for_each(|id| log.push(removed(id)));
        let changes = log.after(start).await.unwrap();
        assert_eq!(changes, [(at(1), removed(1)), (at(2), removed(2)), (at(3), removed(3))]);
        assert_eq!(log.after(at(2)).await.unwrap(), [(at(3), removed(3))]);
        let next = log.after(at(3));
        log.push(removed(4));
        assert_eq!(next.await.unwrap(), [(at(4), removed(4))]);
    }

    #[tokio::test]
    async fn a_reader_too_far_behind_or_of_another_run_starts_over() {
        let log = ChangeLog::new(7);
        (0..MAX_CHANGES as u64 + 10).for_each(|id| log.push(removed(id)));
        assert_eq!(log.after(at(9)).await, Err(Reset));
        assert_eq!(log.after(at(10)).await.unwrap().len(), MAX_CHANGES);
        assert_eq!(log.after(ChangeId { run: 8, number: 20 }).await, Err(Reset));
        assert_eq!(log.after(at(1 << 40)).await, Err(Reset));
    }

    #[test]
    fn large_changes_are_bounded_by_bytes() {
        let log = ChangeLog::new(7);
        for id in 0..40 {
            log.push(Change::JobEvent { id, event: Value::String("x".repeat(1 << 20)) });
        }
        let kept = log.kept.lock();
        assert!(kept.bytes <= MAX_BYTES && kept.changes.len() == 15, "{}", kept.changes.len());
    }

    #[test]
    fn the_text_of_an_id_reads_back() {
        let id = ChangeId { run: u64::MAX, number: 3 };
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "1", "1-", "-1", "a-b", "1-2-3"] {
            assert_eq!(text.parse::<ChangeId>(), Err(Reset), "{text}");
        }
    }
}
