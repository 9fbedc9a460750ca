//! The state of one path in a selection.

use super::{Prior, gauge::Gauge, ranges, recent_rate::RecentRate, timeline::Timeline};
use std::{collections::VecDeque, ops::Range, time::Duration};
use thalweg_units::Time;

/// How a path failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It cannot deliver this object: no connection, another object, a refusal. It is never used again.
    Refused,
    /// The connection broke or ended early. The path may be used again if no path without failures is left.
    Broken,
    /// It owed bytes and delivered none for [`super::Config::stall`]; as `Broken`.
    Stalled,
}

/// Bytes between two failures that count as progress on the last remaining path: some servers cut each answer after
/// about 40 kB, and the download can still be completed. Each failure uses up at least this much of the object, so the
/// selection always ends.
const PROGRESS: u64 = 16 << 10;

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Health {
    /// Not connected yet.
    #[default]
    Waiting,
    Alive,
    Dead,
}

/// What a path was asked for and still owes.
pub(super) struct OwedRanges {
    ranges: VecDeque<Range<u64>>,
    /// Ranges that were requested behind those and then given to another path: the caller stops there.
    beyond: Vec<Range<u64>>,
    /// The last sign of life: request sent or bytes received. `None` until sent.
    pub(super) heard: Option<Time>,
    /// Bytes that arrived and were counted for the rate, but are not trusted yet.
    early: u64,
    /// When the path entered the tail of the object, and how long the tail should take.
    pub(super) tail: Option<(Time, Duration)>,
}

impl OwedRanges {
    /// Takes off the first `n` bytes. Returns their ranges.
    fn take(&mut self, mut n: u64) -> Vec<Range<u64>> {
        let mut taken = Vec::new();
        while let (Some(front), true) = (self.ranges.front_mut(), n > 0) {
            let cut = n.min(front.end - front.start);
            taken.push(front.start..front.start + cut);
            front.start += cut;
            n -= cut;
            if front.is_empty() {
                self.ranges.pop_front();
            }
        }
        taken
    }
}

#[derive(Default)]
pub(super) struct PathState {
    health: Health,
    strikes: u32,
    /// Bytes since the last strike.
    good: u64,
    /// How often it delivered bytes and then stalled.
    pauses: u32,
    /// Own bytes that have not been requested yet.
    share: Vec<Range<u64>>,
    pub(super) owed: Option<OwedRanges>,
    pub(super) gauge: Gauge,
    pub(super) recent: RecentRate,
    pub(super) timeline: Timeline,
    /// The rate (bytes per second) of its last sample, and when that ended.
    pub(super) judged: Option<(f64, Time)>,
    pub(super) prior: Option<Prior>,
    /// The link of this host's own by which it leaves, if it takes capacity from nothing else.
    pub(super) own_link: Option<u32>,
    /// Whether it takes part in the current sampling.
    pub(super) sampled: bool,
    /// Whether its sample is complete.
    pub(super) share_done: bool,
    /// The server wants no request before this time.
    busy: Option<Time>,
}

impl PathState {
    pub(super) fn new(share: Vec<Range<u64>>, now: Time) -> Self {
        let timeline = Timeline::new(now);
        Self { sampled: !share.is_empty(), share, timeline, ..Self::default() }
    }

    /// Marks the path as connected. Returns whether it was awaited.
    pub(super) fn join(&mut self) -> bool {
        let awaited = self.health == Health::Waiting;
        if awaited {
            self.health = Health::Alive;
        }
        awaited
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.health == Health::Waiting
    }

    pub(super) fn is_dead(&self) -> bool {
        self.health == Health::Dead
    }

    /// Whether it is connected, not given up, and may be asked now.
    pub(super) fn is_usable(&self, now: Time) -> bool {
        self.health == Health::Alive && self.busy.is_none_or(|until| until <= now)
    }

    /// When it may be asked again, if it is usable except for that.
    pub(super) fn free_at(&self) -> Option<Time> {
        self.busy.filter(|_| self.health == Health::Alive)
    }

    /// Whether it still takes part in sampling.
    pub(super) fn is_hopeful(&self) -> bool {
        self.sampled && self.health != Health::Dead && self.strikes == 0
    }

    pub(super) fn strikes(&self) -> u32 {
        self.strikes
    }

    pub(super) fn pauses(&self) -> u32 {
        self.pauses
    }

    pub(super) fn is_idle(&self) -> bool {
        self.owed.is_none()
    }

    /// Bytes per second: the rate of its sample, or of earlier transfers; 0 if nothing is known.
    pub(super) fn speed(&self) -> f64 {
        let prior = || self.prior.map(|p| p.rate.as_bps() as f64 / 8.0);
        self.judged.map(|(rate, _)| rate).or_else(prior).unwrap_or(0.0)
    }

    /// The round trip; before the first byte, half of a usual set-up (TCP, then the request).
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.gauge.rtt().or_else(|| self.prior.map(|p| p.setup / 2))
    }

    /// Gives it a share to fetch in sampling.
    pub(super) fn assign(&mut self, share: Vec<Range<u64>>) {
        (self.share, self.sampled, self.share_done) = (share, true, false);
    }

    pub(super) fn open_share(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.share)
    }

    pub(super) fn ask(&mut self, ranges: Vec<Range<u64>>) {
        let ranges = ranges.into();
        self.owed =
            Some(OwedRanges { ranges, beyond: Vec::new(), heard: None, early: 0, tail: None });
    }

    pub(super) fn sent(&mut self, now: Time) {
        if let Some(owed) = &mut self.owed {
            owed.heard = Some(now);
            self.gauge.sent(now);
        }
    }

    /// Takes in up to `n` bytes. Returns the ranges that were owed, and whether the caller must be told to stop behind
    /// them.
    pub(super) fn receive(&mut self, n: u64, forgive: u64, now: Time) -> (Vec<Range<u64>>, bool) {
        let Some(owed) = &mut self.owed else { return Default::default() };
        let taken = owed.take(n);
        owed.heard = Some(now);
        let (n, over) = (ranges::total(&taken), owed.ranges.is_empty());
        let beyond = over && !owed.beyond.is_empty();
        let fresh = n - owed.early.min(n);
        owed.early -= n - fresh;
        self.gauge.add(fresh, now);
        self.timeline.add(fresh, now);
        self.recent.add(fresh, now);
        if over {
            self.owed = None;
            self.gauge.rest();
        }
        self.good += n;
        if self.good >= forgive {
            self.strikes = 0;
        }
        (taken, beyond)
    }

    /// Counts up to `n` of the owed bytes, only for the rate.
    pub(super) fn count_early(&mut self, n: u64, now: Time) {
        let Some(owed) = &mut self.owed else { return };
        let total = ranges::total(&owed.ranges);
        let n = n.min(total.saturating_sub(owed.early));
        owed.early += n;
        owed.heard = Some(now);
        self.gauge.add(n, now);
        self.timeline.add(n, now);
        self.recent.add(n, now);
    }

    /// Records the failure and returns all ranges. On the last remaining path (`is_last`), [`PROGRESS`] since the last
    /// failure clears the earlier ones.
    pub(super) fn fail(&mut self, failure: Failure, max_strikes: u32, is_last: bool) {
        if is_last && self.good >= PROGRESS {
            self.strikes = 0;
        }
        self.strikes += 1;
        self.pauses += u32::from(failure == Failure::Stalled && self.good > 0);
        self.good = 0;
        if failure == Failure::Refused || self.strikes >= max_strikes || self.is_waiting() {
            self.health = Health::Dead;
        }
        self.give_back();
    }

    /// Leaves the path alone until `until`.
    pub(super) fn spare(&mut self, until: Time) {
        self.busy = Some(until);
        self.give_back();
    }

    /// Gives back all that it has not delivered.
    pub(super) fn give_back(&mut self) {
        self.owed = None;
        self.share.clear();
        self.gauge.rest();
    }

    /// Gives back what it has not requested yet.
    pub(super) fn give_back_share(&mut self) {
        self.share.clear();
    }

    /// All ranges of its own, requested or not.
    pub(super) fn holds(&self) -> impl Iterator<Item = &Range<u64>> {
        self.owed.iter().flat_map(|o| &o.ranges).chain(&self.share)
    }

    /// The ranges that were requested and have not arrived.
    pub(super) fn owes(&self) -> impl Iterator<Item = &Range<u64>> {
        self.owed.iter().flat_map(|o| &o.ranges)
    }

    /// Gives up its last `n` bytes, unrequested ones first. At least one requested byte stays, so that the path goes
    /// on.
    pub(super) fn surrender(&mut self, n: u64) -> Vec<Range<u64>> {
        let mut given = ranges::cut_tail(&mut self.share, n);
        let more = n - ranges::total(&given);
        if let (Some(owed), true) = (&mut self.owed, more > 0) {
            let mut kept: Vec<_> = owed.ranges.drain(..).collect();
            let more = more.min(ranges::total(&kept).saturating_sub(1));
            let tail = ranges::cut_tail(&mut kept, more);
            owed.ranges = kept.into();
            owed.beyond.splice(0..0, tail.iter().cloned());
            given.extend(tail);
            ranges::merge(&mut given);
        }
        given
    }

    /// Takes back what it had surrendered and is `free` again, as far as the request under way continues without a gap.
    pub(super) fn extend(&mut self, free: &[Range<u64>]) {
        let Some(owed) = &mut self.owed else { return };
        while let Some(next) = owed.beyond.first().cloned() {
            let Some(part) = ranges::common(free, [&next]).into_iter().next() else { return };
            if part.start != next.start {
                return;
            }
            // Kept as one range, as it was requested: so a helper requests the fewest ranges.
            match owed.ranges.back_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => owed.ranges.push_back(part.clone()),
            }
            owed.beyond[0].start = part.end;
            if part.end < next.end {
                return;
            }
            owed.beyond.remove(0);
        }
    }

    /// Since when a path that owes bytes has been silent.
    pub(super) fn silent_since(&self) -> Option<Time> {
        self.owed.as_ref()?.heard
    }

    pub(super) fn paused(&mut self, d: Duration) {
        self.gauge.paused(d);
        self.recent.paused(d);
        self.timeline.paused(d);
        if let Some(owed) = &mut self.owed {
            owed.heard.iter_mut().for_each(|t| *t += d);
            owed.tail.iter_mut().for_each(|(t, _)| *t += d);
        }
    }
}
