//! What a selection knows of one path.

use super::{sample::Sample, shares::Share};
use std::{ops::Range, time::Duration};
use thalweg_units::Time;

/// How a path failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It cannot deliver this object: no connection, another object, a refusal.
    /// Never used again.
    Refused,
    /// The connection broke or ended early; may be used again if no unblemished path is left.
    Broken,
    /// It owed bytes and delivered none for [`super::Config::stall`]; as `Broken`.
    Stalled,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    /// Not connected yet.
    Waiting,
    Alive,
    Dead,
}

/// What a path was asked for and still owes.
struct Owed {
    ranges: Share,
    /// The last sign of life: request sent or bytes received. `None` until sent.
    heard: Option<Time>,
}

impl Owed {
    /// Takes the first `n` bytes off; returns how many there were.
    fn take(&mut self, n: u64) -> u64 {
        let mut left = n;
        while let (Some(front), true) = (self.ranges.front_mut(), left > 0) {
            let cut = left.min(front.end - front.start);
            front.start += cut;
            left -= cut;
            if front.is_empty() {
                self.ranges.pop_front();
            }
        }
        n - left
    }
}

pub(super) struct PathState {
    health: Health,
    strikes: u32,
    /// Bytes since the last strike.
    good: u64,
    share: Share,
    owed: Option<Owed>,
    pub(super) sample: Sample,
    share_done: bool,
}

impl PathState {
    pub(super) fn new(share: Share) -> Self {
        let sample = Sample::default();
        Self {
            health: Health::Waiting,
            strikes: 0,
            good: 0,
            share,
            owed: None,
            sample,
            share_done: false,
        }
    }

    /// True if the path was awaited.
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

    /// Connected and not given up.
    pub(super) fn is_usable(&self) -> bool {
        self.health == Health::Alive
    }

    /// Still takes part in sampling.
    pub(super) fn is_hopeful(&self) -> bool {
        self.health != Health::Dead && self.strikes == 0
    }

    pub(super) fn strikes(&self) -> u32 {
        self.strikes
    }

    pub(super) fn is_idle(&self) -> bool {
        self.owed.is_none()
    }

    pub(super) fn share_done(&self) -> bool {
        self.share_done
    }

    /// All of its share; the second time none is left, and it is complete.
    pub(super) fn open_share(&mut self, now: Time) -> Vec<Range<u64>> {
        if self.share.is_empty() {
            self.share_done = true;
            self.sample.close(now);
        }
        self.share.drain(..).collect()
    }

    pub(super) fn ask(&mut self, ranges: Vec<Range<u64>>) {
        self.owed = Some(Owed { ranges: ranges.into(), heard: None });
    }

    pub(super) fn sent(&mut self, sampling: bool, now: Time) {
        if let Some(owed) = &mut self.owed {
            owed.heard = Some(now);
            if sampling {
                self.sample.open(now);
            }
        }
    }

    /// Takes in up to `n` bytes; returns how many were owed.
    pub(super) fn receive(&mut self, n: u64, sampling: bool, forgive: u64, now: Time) -> u64 {
        let Some(owed) = &mut self.owed else { return 0 };
        let n = owed.take(n);
        owed.heard = Some(now);
        if owed.ranges.is_empty() {
            self.owed = None;
        }
        if sampling {
            self.sample.add(n);
        }
        self.good += n;
        if self.good >= forgive {
            self.strikes = 0;
        }
        n
    }

    /// Records the failure; returns the ranges it gives back.
    pub(super) fn fail(&mut self, failure: Failure, max_strikes: u32) -> Vec<Range<u64>> {
        self.strikes += 1;
        self.good = 0;
        if failure == Failure::Refused || self.strikes >= max_strikes || self.is_waiting() {
            self.health = Health::Dead;
        }
        self.give_back()
    }

    /// All it has not delivered.
    pub(super) fn give_back(&mut self) -> Vec<Range<u64>> {
        let owed = self.owed.take().map(|o| o.ranges).unwrap_or_default();
        owed.into_iter().chain(self.share.drain(..)).collect()
    }

    /// What it has not asked for yet.
    pub(super) fn give_back_share(&mut self) -> Vec<Range<u64>> {
        self.share.drain(..).collect()
    }

    /// Since when a path that owes bytes has been silent.
    pub(super) fn silent_since(&self) -> Option<Time> {
        self.owed.as_ref()?.heard
    }

    pub(super) fn paused(&mut self, d: Duration) {
        self.sample.paused(d);
        if let Some(heard) = self.owed.as_mut().and_then(|o| o.heard.as_mut()) {
            *heard += d;
        }
    }
}
