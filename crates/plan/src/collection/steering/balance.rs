//! Who ends last gets ways, who ends early gives them up.

use super::{Open, Steering};

/// Whoever ends within this part of the last one's time ends last as well.
pub(super) const LAST: f64 = 0.95;
/// So many times later than a full access allows is late.
pub(super) const LATE: f64 = 1.03;
/// An access that carries this part of what it can is full.
const FULL: f64 = 0.93;
/// Whoever would end before this part of the last one's time without a way does not need it.
const EARLY: f64 = 0.95;
/// Ends that differ by no more are the same.
const SAME: f64 = 1.005;
/// A way that is to take another's place must promise so many times as much.
pub(super) const BETTER: f64 = 1.5;
/// A way must promise this part of what the source has.
const LEAST: f64 = 0.05;

impl Steering {
    /// Opens and closes ways: has anything changed?
    pub(super) fn balance(&mut self) -> bool {
        let forecast = self.forecast(None);
        let last = forecast.last();
        // What is over before a trial would be has no use for one.
        let round = self.settings.interval.as_secs_f64() * f64::from(self.settings.samples);
        if last < 2.0 * round {
            return false;
        }
        let is_late = last > LATE * self.floor();
        let sources = (0..self.remaining.len() as u32).filter(|source| self.is_waiting(*source));
        let mut changed = false;
        for source in sources.collect::<Vec<u32>>() {
            let is_last = forecast.ends[source as usize] >= LAST * last;
            changed |=
                if is_late && is_last { self.widen(source) } else { self.narrow(source, last) };
        }
        changed
    }

    /// The destination's access carries what it is known to.
    pub(super) fn is_full(&self) -> bool {
        let (into, _) = self.legs.host_limits(self.destination);
        self.open.iter().map(Open::rate).sum::<f64>() >= FULL * into
    }

    /// Tries one more way, or another in the place of the slowest.
    fn widen(&mut self, source: u32) -> bool {
        if self.of(source).any(|open| open.trial.is_some()) {
            return false;
        }
        let next = self.next_planned(source).or_else(|| self.best_untried(source));
        let Some((way, expected)) = next else { return false };
        let count = self.of(source).count();
        if count < self.settings.ways.max(1) {
            if count > 0 && expected < LEAST * self.rate(source) {
                return false;
            }
            self.add(way, true);
            return true;
        }
        let slowest = self.slowest(source).filter(|open| expected > BETTER * open.rate());
        let Some(id) = slowest.map(|open| open.id) else { return false };
        self.close(id);
        self.add(way, true);
        true
    }

    /// Gives up the way that carries least, if everything ends as soon without.
    fn narrow(&mut self, source: u32, last: f64) -> bool {
        let Some(slowest) = self.slowest(source) else { return false };
        let (id, is_settled) = (slowest.id, slowest.seen() >= self.settings.samples);
        if self.of(source).count() < 2 || !is_settled {
            return false;
        }
        let without = self.forecast(Some(id));
        let goes = without.last() <= SAME * last && without.ends[source as usize] <= EARLY * last;
        if goes {
            self.close(id);
        }
        goes
    }

    /// A source with data has a way at least: the best that is not benched, else the one whose pause
    /// ends first.
    pub(super) fn keep_reachable(&mut self) {
        for source in 0..self.remaining.len() as u32 {
            if !self.is_waiting(source) || self.of(source).next().is_some() {
                continue;
            }
            let untried = self.best_untried(source).map(|(way, _)| way);
            let next = untried.or_else(|| {
                let benched = self.benched.iter().filter(|(way, _)| way.source == source);
                benched.min_by_key(|(_, b)| b.until).map(|(way, _)| way.clone())
            });
            if let Some(way) = next {
                self.add(way, false);
                self.calm = 0;
            }
        }
    }
}
