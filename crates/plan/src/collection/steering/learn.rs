//! What rates say of trials, legs and sets.

use super::{
    Open, Steering, WayId,
    balance::{LAST, LATE},
    legs::Leg,
};
use std::collections::{BTreeMap, BTreeSet};

/// A trial that adds less than this part of what it carries only takes it from its siblings.
const WORTH: f64 = 0.3;

impl Steering {
    /// Ends the trials that are settled: is any way closed?
    pub(super) fn judge(&mut self) -> bool {
        let settled = |open: &&Open| open.trial.is_some() && open.seen() >= self.settings.samples;
        let due: Vec<WayId> = self.open.iter().filter(settled).map(|open| open.id).collect();
        let gain = self.gain(&due);
        if gain < WORTH {
            let all = self.open.iter().map(Open::rate).sum();
            self.legs.limit_into(self.destination, all);
        }
        let mut changed = false;
        for id in due {
            changed |= self.judge_one(id, gain);
        }
        changed
    }

    /// Which part of what these carry is not taken from the others, of whichever source.
    fn gain(&self, due: &[WayId]) -> f64 {
        let is_due = |open: &Open| due.contains(&open.id);
        let first = self.open.iter().find_map(|open| open.trial.as_ref().filter(|_| is_due(open)));
        let Some(before) = first else { return 1.0 };
        let carried: f64 = self.open.iter().filter(|open| is_due(open)).map(Open::rate).sum();
        let taken = |open: &Open| before.get(&open.id).map_or(0.0, |was| was - open.rate());
        let taken: f64 = self.open.iter().filter(|open| !is_due(open)).map(taken).sum();
        1.0 - taken.max(0.0) / carried.max(1e-9)
    }

    /// A trial is worth its connection if everything together became faster by it; or if its source ends
    /// last, and has more now, be it from the others, who do not lose much more by it.
    fn judge_one(&mut self, id: WayId, gain: f64) -> bool {
        let Some(at) = self.open.iter().position(|open| open.id == id) else { return false };
        let Some(before) = self.open[at].trial.take() else { return false };
        let source = self.open[at].way.source;
        let carried = self.open[at].rate();
        self.learn_set(id, &before);
        let siblings = || self.of(source).filter(|open| open.id != id);
        let taken = |open: &Open| before.get(&open.id).map_or(0.0, |was| was - open.rate());
        let own = 1.0 - siblings().map(taken).sum::<f64>().max(0.0) / carried.max(1e-9);
        let forecast = self.forecast(None);
        let late = forecast.last() > LATE * self.floor()
            && forecast.ends[source as usize] >= LAST * forecast.last();
        let much = carried >= 0.03 * self.rate(source);
        let is_worth = much && own >= WORTH && (gain >= WORTH || late && gain >= -WORTH);
        if is_worth || self.of(source).count() <= 1 {
            return false;
        }
        self.close(id);
        true
    }

    /// If others slowed by half of what the new way carries or more, they share something with it.
    fn learn_set(&mut self, id: WayId, before: &BTreeMap<WayId, f64>) {
        let lost = |open: &&Open| {
            let was = before.get(&open.id).copied().unwrap_or(0.0);
            open.id != id && open.rate() < (1.0 - self.settings.drift) * was
        };
        let slowed: Vec<&Open> = self.open.iter().filter(lost).collect();
        let Some(new) = self.open.iter().find(|open| open.id == id) else { return };
        let taken: f64 = slowed
            .iter()
            .map(|open| before.get(&open.id).copied().unwrap_or(0.0) - open.rate())
            .sum();
        if slowed.is_empty() || taken < 0.5 * new.rate() {
            return;
        }
        let together: Vec<&Open> = slowed.into_iter().chain([new]).collect();
        let limit = together.iter().map(|open| open.rate()).sum();
        let legs: BTreeSet<Leg> = together.iter().filter_map(|open| self.narrowest(open)).collect();
        if legs.len() > 1 {
            self.legs.learn(legs, limit);
        }
    }

    /// The leg of a way that is taken to be its slowest.
    fn narrowest(&self, open: &Open) -> Option<Leg> {
        let legs = open.way.legs(self.destination).into_iter();
        legs.min_by(|a, b| self.legs.rate(*a).total_cmp(&self.legs.rate(*b)))
    }

    /// Holds realised rates against planned ones and corrects what is known of the legs: was any way away
    /// from its plan?
    pub(super) fn learn_drift(&mut self) -> bool {
        let before = self.drifts;
        let used = self.used();
        for (leg, load) in &used.loads {
            self.legs.raise(*leg, *load);
        }
        self.legs.raise_sets(&used.loads);
        for at in 0..self.open.len() {
            let open = &self.open[at];
            if open.seen() < self.settings.samples {
                continue;
            }
            let (rate, expected) = (open.rate(), open.expected);
            let away = (rate - expected).abs() > self.settings.drift * expected;
            if !away {
                continue;
            }
            self.drifts += 1;
            let leg = self.narrowest(open);
            if let Some(leg) = leg.filter(|_| rate < expected) {
                self.legs.lower(leg, used.load(leg));
            }
            self.open[at].expected = rate;
        }
        self.drifts > before
    }
}
