//! Repeats old measurements, the most important ones first.

mod value;

use super::{Pair, Schedule, ScheduleInput};
use crate::ranking::Ranking;
use rand_core::Rng;
use std::{cmp::Ordering, collections::BTreeMap, time::Duration};
use value::Values;

/// A leg is asked for again at the latest at this share of the period: the rest is for queues, budgets and retries.
const LATEST: f64 = 0.75;

/// No leg is asked for again before this share of the period, however much it matters.
const SOONEST: f64 = 0.125;

/// The number of legs that are judged at a time, the oldest first: O(d) each.
const JUDGED: usize = 4_096;

/// At most one of this many legs is queued at a time, out of those that are due.
const QUEUED: usize = 64;
/// The minimum number of legs that are queued at a time, if so many are due.
const LEAST_QUEUED: usize = 16;

/// Repeats old measurements. Needs [`ScheduleInput::age_s`], and asks for nothing without it.
///
/// UKAIRO §2.1: "measurements for detour discovery have to be repeated roughly every 2 weeks". We model a rate's drift
/// as one that forgets within the period (Ornstein and Uhlenbeck), so what measuring again can tell grows as `1 −
/// e^(−2·age/period)`. This is multiplied by what the leg can change: the order of relays around the last of a client's
/// candidates, and its own pair's choice between direct path and detour. A leg of mean value is due at three quarters
/// of the period, as every leg is at the latest; one that matters three times as much is due at about a fifth.
#[derive(Clone, Debug)]
pub struct Upkeep {
    period_s: f64,
    /// The legs that are due, the most urgent last.
    due: Vec<Pair>,
    /// The legs that were asked for, with their ages at that time, s.
    asked: BTreeMap<Pair, f64>,
    /// (leg, from, until): nothing is due while the age of this leg is in this range, s.
    quiet: Option<(Pair, f64, f64)>,
    /// The last ranking from the caller.
    ranking: Option<Ranking>,
}

impl Upkeep {
    /// Measures each leg again within `period` (UKAIRO: 2 weeks, which is [`MAX_AGE`](crate::graph::MAX_AGE) as well),
    /// and legs that may change much sooner.
    pub const fn new(period: Duration) -> Self {
        let period_s = period.as_secs_f64();
        Self { period_s, due: vec![], asked: BTreeMap::new(), quiet: None, ranking: None }
    }

    /// Forgets legs that were measured again, are gone, or are excluded.
    fn settle(&mut self, known: &ScheduleInput<'_>) {
        let age = |pair| known.age_s.and_then(|ages| ages.age_s(pair));
        self.asked.retain(|pair, before| {
            age(*pair).is_some_and(|now| now >= *before) && !known.excluded.contains(*pair)
        });
    }

    fn is_quiet(&self, known: &ScheduleInput<'_>) -> bool {
        let Some((pair, from, until)) = self.quiet else { return false };
        let now = known.age_s.and_then(|ages| ages.age_s(pair));
        now.is_some_and(|now| now >= from && now < until)
    }

    /// Finds the legs that are due. O(legs), and O(d) for each leg that is judged; O(n·d²) without a ranking from the
    /// caller.
    fn refill(&mut self, known: &ScheduleInput<'_>) {
        let Some(ages) = known.age_s else { return };
        let aged = known.graph.legs().filter_map(|(pair, _)| Some((ages.age_s(pair)?, pair)));
        let all: Vec<(f64, Pair)> = aged.collect();
        let oldest = all.iter().copied().min_by(older);
        let ready = |(age, pair): &(f64, Pair)| {
            *age >= SOONEST * self.period_s
                && !self.asked.contains_key(pair)
                && !known.excluded.contains(*pair)
        };
        let count = all.len();
        let mut judged: Vec<(f64, Pair)> = all.into_iter().filter(ready).collect();
        if judged.len() > JUDGED {
            judged.select_nth_unstable_by(JUDGED, older);
            judged.truncate(JUDGED);
        }
        judged.sort_by(older);
        let mut urgent = self.urgent(known, &judged);
        urgent.sort_by(older);
        urgent.truncate((count / QUEUED).max(LEAST_QUEUED));
        self.due = urgent.into_iter().rev().map(|(_, pair)| pair).collect();
        // Look again when the oldest leg has aged by a hundredth of the period.
        let oldest = oldest.filter(|_| self.due.is_empty());
        self.quiet = oldest.map(|(age, pair)| (pair, age, age + self.period_s / 100.0));
    }

    /// The legs that are due, with their urgency.
    fn urgent(&self, known: &ScheduleInput<'_>, judged: &[(f64, Pair)]) -> Vec<(f64, Pair)> {
        if judged.is_empty() {
            return vec![];
        }
        let values = Values::new(known.graph, self.ranking.as_ref());
        let values: Vec<f64> = judged.iter().map(|(_, pair)| values.of(*pair)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let information = |share: f64| 1.0 - (-2.0 * share).exp();
        let urgency = |((age, pair), value): (&(f64, Pair), &f64)| {
            let share = age / self.period_s;
            let matters = if mean > 0.0 { value / mean } else { 1.0 };
            let urgency = information(share) * matters;
            if share >= LATEST {
                // Late legs go before all others, the oldest first.
                return Some((f64::MAX.min(1e6 * (1.0 + share)), *pair));
            }
            (urgency >= information(LATEST)).then_some((urgency, *pair))
        };
        judged.iter().zip(&values).filter_map(urgency).collect()
    }
}

/// Orders by descending number, then by pair.
fn older(a: &(f64, Pair), b: &(f64, Pair)) -> Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

impl Schedule for Upkeep {
    fn next(&mut self, known: &ScheduleInput<'_>, _random: &mut dyn Rng) -> Vec<Pair> {
        self.settle(known);
        if self.due.is_empty() && !self.is_quiet(known) {
            self.refill(known);
        }
        let age = |pair| known.age_s.and_then(|ages| ages.age_s(pair));
        while let Some(pair) = self.due.pop() {
            // It may have been measured meanwhile, because users' transfers count as well.
            let now = age(pair).filter(|age| *age >= SOONEST * self.period_s);
            if let (Some(now), false) = (now, known.excluded.contains(pair)) {
                self.asked.insert(pair, now);
                return vec![pair];
            }
        }
        vec![]
    }

    fn set_ranking(&mut self, ranking: &Ranking) {
        self.ranking = Some(ranking.clone());
    }
}
