//! The history's way to the database and back, beside all else.

use super::{
    MeasureEvent,
    known::{Dispute, Entry},
    nodes::Slot,
    presence::Downtime,
    state::{Now, State},
    verdict::sane,
};
use crate::{
    Database, Event, Oracle,
    election::Standing,
    publish::earlier,
    store::{MOST_SAMPLES, Recent, Sample, State as UpOrDown},
};
use std::time::Duration;
use thalweg_measure::{Bound, Metric};
use thalweg_plan::graph::MAX_AGE;
use thalweg_units::NodeId;
use tokio::time::{Instant, sleep, timeout};

/// Between two looks at the buffer, which are what a killed oracle loses; and after a failure.
const EVERY: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_secs(10);

/// Between two tries to read what was measured before.
const AGAIN: Duration = Duration::from_secs(60);

/// The database is made shorter in small steps: so often, and at the start, once this oracle
/// is elected.
const COMPACT: Duration = Duration::from_secs(3600);

/// And sooner, if so many measurements were kept since: an eighth of the most that are kept whole.
const COMPACT_ROWS: u64 = MOST_SAMPLES.unsigned_abs() / 8;

/// Between two looks whether it is time.
const LOOK: Duration = Duration::from_secs(5);

/// For the last entries when the oracle stops.
const LAST: Duration = Duration::from_secs(2);

impl Oracle {
    fn tell_measuring(&self, event: Option<MeasureEvent>) {
        event.into_iter().for_each(|event| self.tell(&Event::Measuring(event)));
    }

    /// Keeps what is new; never ends.
    pub(super) async fn keep_history(&self) {
        loop {
            let pause = if self.keep_some().await { EVERY } else { RETRY };
            sleep(pause).await;
        }
    }

    /// Keeps all that waits; false if the database does not take it.
    async fn keep_some(&self) -> bool {
        let history = &self.inner.measuring.history;
        while let Some(batch) = history.next() {
            if let Err(error) = self.inner.store.record(&batch).await {
                self.tell_measuring(history.put_back(batch, error.to_string()));
                return false;
            }
            history.add_rows(batch.samples.len() as u64);
            self.tell_measuring(history.kept());
        }
        true
    }

    /// The last entries, for a short time.
    pub(crate) async fn keep_last(&self) {
        let _ = timeout(LAST, self.keep_some()).await;
    }

    /// Reads what was measured before; then, of several oracles, what others record.
    pub(super) async fn follow_others(&self) {
        let mut cursor = self.remember().await;
        if let Database::File = self.inner.config.database {
            return;
        }
        loop {
            sleep(self.inner.measuring.config.pace.follow).await;
            // What is wrong with the database is told by the look for newer rosters.
            while let Ok(recent) = self.inner.store.load_since(cursor).await {
                cursor = recent.cursor;
                let is_last = recent.samples.is_empty();
                self.take_over(recent).await;
                if is_last {
                    break;
                }
            }
        }
    }

    /// Fills the table with what was measured before; tries until that is possible.
    async fn remember(&self) -> i64 {
        let mut told = None;
        loop {
            let oldest = earlier(self.now(), MAX_AGE);
            match self.inner.store.load_recent(oldest).await {
                Ok(recent) => {
                    let cursor = recent.cursor;
                    self.take_over(recent).await;
                    return cursor;
                }
                Err(error) => {
                    let why = Some(error.to_string());
                    if why != told {
                        self.tell_measuring(why.clone().map(MeasureEvent::Forgotten));
                        told = why;
                    }
                }
            }
            sleep(AGAIN).await;
        }
    }

    async fn take_over(&self, recent: Recent) {
        let measuring = &*self.inner.measuring;
        let newest = self.newest();
        let mut state = measuring.state.lock().await;
        let now = measuring.now();
        state.follow(&newest.roster, &self.inner.node, now.time);
        state.take_over(recent, now);
        drop(state);
        measuring.news.notify_one();
    }

    /// Makes old measurements shorter when it is time, if this oracle is elected.
    pub(super) async fn compactions(&self) {
        let history = &self.inner.measuring.history;
        let mut last: Option<Instant> = None;
        loop {
            let is_time =
                last.is_none_or(|last| last.elapsed() >= COMPACT) || history.rows() >= COMPACT_ROWS;
            if let (true, Standing::Elected { .. }) = (is_time, self.standing()) {
                last = Some(Instant::now());
                history.take_rows();
                // It is tried again; what is wrong is told by whoever writes.
                let _ = self.inner.store.compact(self.now()).await;
            }
            sleep(LOOK).await;
        }
    }
}

impl State {
    /// Takes over what an oracle has recorded, of members there still are.
    fn take_over(&mut self, recent: Recent, now: Now) {
        for sample in &recent.samples {
            if let Some(entry) = self.entry(sample, now) {
                self.enter(&entry, now.time);
            }
        }
        for entry in &recent.disagreements {
            let slot = |key: &NodeId| self.nodes.by_key(key);
            let slots = (slot(&entry.from), slot(&entry.to), slot(&entry.by));
            let (Some(from), Some(to), Some(by)) = slots else { continue };
            let dispute = Dispute {
                leg: (from, to),
                by,
                claimed: entry.claimed,
                seen: entry.seen,
                believed: entry.believed,
                at: now.time_of(entry.at),
            };
            // One's own come back from the database, with a date that differs by less.
            let is_known = |known: &Dispute| {
                known.leg == dispute.leg && known.claimed as u64 == dispute.claimed as u64
            };
            if !self.known.disputes().any(is_known) {
                self.known.dispute(dispute);
            }
        }
        if self.term.is_none() {
            self.take_changes(&recent, now);
        }
    }

    /// Who is down, as the elected oracle says.
    fn take_changes(&mut self, recent: &Recent, now: Now) {
        for change in &recent.changes {
            let Some(slot) = self.nodes.by_key(&change.node) else { continue };
            let since = now.time_of(change.at);
            let down = (change.state == UpOrDown::Down)
                .then(|| Downtime { since, why: change.why.clone() });
            self.changes += u64::from(self.presence.set(slot, down));
        }
    }

    fn entry(&self, sample: &Sample, now: Now) -> Option<Entry> {
        let slot = |key: &NodeId| self.nodes.by_key(key);
        let topic = &sample.topic;
        let leg: (Slot, Slot) = (slot(&topic.from)?, slot(&topic.to)?);
        let (reporter, own) = (slot(&topic.reporter)?, sample.seen.is_none());
        let is_oracle = |slot| self.nodes.get(slot).is_some_and(|node| node.is_oracle);
        // An end reports what it alone has said; an oracle, what both have. An oracle's own node
        // may be an end as well.
        let is_sole = own && (reporter == leg.0 || reporter == leg.1) && !is_oracle(reporter);
        let is_rate = topic.metric == Metric::Throughput && sane("", sample.value).is_ok();
        is_rate.then(|| Entry {
            leg,
            bps: sample.value,
            spread: sample.spread,
            method: topic.method,
            // Older versions took one end's word for a value.
            bound: if is_sole { Bound::AtLeast } else { topic.bound },
            is_sole,
            reporter,
            at: now.time_of(sample.measured),
        })
    }
}
