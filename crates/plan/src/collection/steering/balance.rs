//! Who ends last gets ways, who ends early gives them up.

use super::{Open, Steering};

/// Whoever ends within this part of the last one's time ends last as well.
const LAST: f64 = 0.9;
/// Whoever ends so many times later than all would together is late.
pub(super) const LATE: f64 = 1.1;
/// An access that carries this part of what it can is full.
const FULL: f64 = 0.93;
/// Whoever would end before this part even with a way less has one too many.
const EARLY: f64 = 0.8;
/// A way that is to take another's place must promise so many times as much.
const BETTER: f64 = 1.5;
/// A way must promise this part of what the source has.
const LEAST: f64 = 0.05;

impl Steering {
    /// Opens and closes ways: has anything changed?
    pub(super) fn balance(&mut self) -> bool {
        let sources: Vec<u32> =
            (0..self.remaining.len() as u32).filter(|source| self.is_waiting(*source)).collect();
        let last = sources.iter().map(|source| self.ends(*source)).fold(0.0, f64::max);
        // What is over before a trial would be has no use for one.
        let round = self.settings.interval.as_secs_f64() * f64::from(self.settings.samples);
        if last < 2.0 * round {
            return false;
        }
        // Where the destination takes no more, a further way only shifts: to who would end last.
        let least =
            if self.is_full() { (LATE * self.mean_end()).max(LAST * last) } else { LAST * last };
        let mut changed = false;
        for source in sources {
            let ends = self.ends(source);
            if ends >= least {
                changed |= self.widen(source);
            } else {
                changed |= self.narrow(source, EARLY * last);
            }
        }
        changed
    }

    /// The destination's access carries what it is known to.
    pub(super) fn is_full(&self) -> bool {
        let (into, _) = self.legs.host_limits(self.destination);
        self.open.iter().map(Open::rate).sum::<f64>() >= FULL * into
    }

    /// When all would end if sources could share their rates, s.
    pub(super) fn mean_end(&self) -> f64 {
        let sources = (0..self.remaining.len() as u32).filter(|source| self.is_waiting(*source));
        let (left, rate) = sources.fold((0.0, 0.0), |(left, rate), source| {
            (left + self.remaining[source as usize] as f64, rate + self.rate(source))
        });
        left / rate.max(1e-9)
    }

    /// Tries one more way, or another in the place of the slowest.
    fn widen(&mut self, source: u32) -> bool {
        if self.of(source).any(|open| open.trial.is_some()) {
            return false;
        }
        let Some((way, expected)) = self.best_untried(source) else { return false };
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

    /// Gives up the way that carries least, if it ends early enough without.
    fn narrow(&mut self, source: u32, early: f64) -> bool {
        let count = self.of(source).count();
        let Some(slowest) = self.slowest(source).filter(|_| count > 1) else { return false };
        let left = self.rate(source) - slowest.rate();
        let id = slowest.id;
        let enough = left > 0.0 && self.remaining[source as usize] as f64 / left < early;
        if enough {
            self.close(id);
        }
        enough
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
