//! A receiver's record of one parent: the symbols it holds and owes, and its rate.

use super::{ParentStatus, PullSettings, meter::Meter};
use crate::have::HaveSet;
use std::{collections::BTreeMap, time::Duration};
use thalweg_units::{ByteSize, Rate, Time};

/// Assumed if the round trip is unknown.
const DEFAULT_RTT: Duration = Duration::from_millis(100);

/// A round trip may grow up to this multiple of the shortest seen. Growth beyond that is the queue of this receiver's
/// own requests.
const MAX_GROWTH: u32 = 4;

/// The minimum window, as time at the parent's rate. On a path of 0.1 ms, two round trips are two symbols at 1 Gbit/s,
/// and both ends woke for every third symbol to request the next ones.
const MIN_WINDOW_TIME: Duration = Duration::from_millis(4);

/// The state of one parent in a pull.
#[derive(Clone, Debug)]
pub(super) struct Parent {
    pub(super) has: HaveSet,
    /// The symbols that it owes, with the time of each request.
    pub(super) outstanding: BTreeMap<u64, Time>,
    /// The chunk that is being requested from it.
    pub(super) unit: Option<u64>,
    expected: Rate,
    meter: Meter,
    shortest: Option<Duration>,
    rtt: Duration,
    /// When it last sent a requested symbol, or began to owe something.
    heard: Time,
    fresh_bytes: u64,
    duplicate_bytes: u64,
}

impl Parent {
    pub(super) fn new(has: HaveSet, expected: Rate, rtt: Duration, now: Time) -> Self {
        Self {
            has,
            outstanding: BTreeMap::new(),
            unit: None,
            expected,
            meter: Meter::new(now),
            shortest: None,
            rtt: if rtt.is_zero() { DEFAULT_RTT } else { rtt },
            heard: now,
            fresh_bytes: 0,
            duplicate_bytes: 0,
        }
    }

    /// Records requests to the parent.
    pub(super) fn record_requests(&mut self, symbols: impl Iterator<Item = u64>, now: Time) {
        if self.outstanding.is_empty() {
            self.heard = now;
        }
        self.meter.resume(now);
        self.outstanding.extend(symbols.map(|index| (index, now)));
    }

    /// Records a symbol from the parent. Returns whether it was requested.
    pub(super) fn record_arrival(&mut self, index: u64, bytes: u64, now: Time) -> bool {
        let Some(at) = self.outstanding.remove(&index) else { return false };
        // Only requested symbols are signs of life; otherwise a parent could send one symbol forever.
        self.heard = now;
        self.sample_rtt(now.since(at));
        self.meter.add(bytes, self.rtt, now);
        self.pause_if_idle(now);
        true
    }

    /// Records that the parent refused a symbol, or sent a wrong one. Returns whether it was requested.
    pub(super) fn record_refusal(&mut self, index: u64, now: Time) -> bool {
        let asked = self.outstanding.remove(&index).is_some();
        if asked {
            self.heard = now;
        }
        self.pause_if_idle(now);
        asked
    }

    fn pause_if_idle(&mut self, now: Time) {
        if self.outstanding.is_empty() {
            self.meter.pause(now);
        }
    }

    pub(super) fn count(&mut self, bytes: u64, fresh: bool) {
        let count = if fresh { &mut self.fresh_bytes } else { &mut self.duplicate_bytes };
        *count += bytes;
    }

    fn sample_rtt(&mut self, sample: Duration) {
        let shortest = self.shortest.map_or(sample, |known| known.min(sample));
        let first = self.shortest.is_none();
        self.shortest = Some(shortest);
        let smoothed =
            if first || sample < self.rtt { sample } else { self.rtt * 15 / 16 + sample / 16 };
        self.rtt = smoothed.min(shortest.saturating_mul(MAX_GROWTH));
    }

    /// The window in bytes: twice the rate times the round trip, so that the parent never runs dry, and on the shortest
    /// paths what it sends in [`MIN_WINDOW_TIME`].
    pub(super) fn window(&self, symbol_bytes: u64, settings: &PullSettings) -> u64 {
        let rate = self.meter.peak().unwrap_or(self.expected);
        let twice = rate.bytes_in(self.rtt.saturating_mul(2).max(MIN_WINDOW_TIME)).as_bytes();
        let least = match self.meter.peak() {
            // Two symbols: one is in transit while the next one is requested.
            Some(_) => 2 * symbol_bytes,
            None => settings.first_window.max(2 * symbol_bytes),
        };
        twice.max(least).min(settings.max_window.max(symbol_bytes))
    }

    /// The time until it will have sent what it owes and `more` bytes: by its rate, or by the time it has been silent
    /// if that is lower.
    pub(super) fn finish_time(&self, more: u64, symbol_bytes: u64, now: Time) -> Duration {
        let bytes = self.outstanding.len() as u64 * symbol_bytes + more;
        let size = ByteSize::from_bytes;
        let quiet = now.since(self.heard);
        let mut rate = self.rate();
        if !self.outstanding.is_empty() && quiet > self.rtt {
            rate = rate.min(Rate::over(size(symbol_bytes), quiet));
        }
        self.rtt.saturating_add(rate.time_for(size(bytes)))
    }

    pub(super) fn rate(&self) -> Rate {
        self.meter.rate().unwrap_or(self.expected)
    }

    pub(super) fn is_silent(&self, now: Time, least: Duration, symbol_bytes: u64) -> bool {
        let symbol = self.rate().time_for(ByteSize::from_bytes(symbol_bytes));
        let patience = if self.rate() == Rate::ZERO { Duration::ZERO } else { symbol };
        let limit = least.max(self.rtt.saturating_add(patience).saturating_mul(4));
        !self.outstanding.is_empty() && now.since(self.heard) > limit
    }

    pub(super) fn status(&self) -> ParentStatus {
        ParentStatus {
            rate: self.rate(),
            measured: self.meter.rate().is_some(),
            rtt: self.rtt,
            fresh_bytes: self.fresh_bytes,
            duplicate_bytes: self.duplicate_bytes,
            outstanding: self.outstanding.len() as u64,
            holds: self.has.count(),
        }
    }
}
