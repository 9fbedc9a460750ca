//! What trains found, beside what both ends measured.

use super::{
    super::live::{seconds, spare},
    Known, Leg,
};
use std::time::Duration;
use thalweg_measure::{Bound, Estimate, MAX_SPARE_AGE, Method, Metric, NodeIndex, Subject};
use thalweg_units::Time;

/// Available bandwidth: bit/s, half the range's width, whether it may be more, when.
type Found = (f64, f64, bool, Time);

impl Known {
    /// Takes in what trains from the leg's sender found; false if a younger one is there.
    ///
    /// One end's word: above what both ends have shown with two others each, or TCP has reached on this leg, it is a
    /// lower bound of that much.
    pub(in crate::measure) fn probed(
        &mut self,
        leg: Leg,
        (bps, spread, at_least, at): Found,
        now: Time,
    ) -> bool {
        let (from, to) = leg;
        let shown = self.shown(from).zip(self.shown(to)).map(|(from, to)| from.min(to));
        let reached = self.exact(leg, now).map(|e| e.value);
        let most = [shown, reached].into_iter().flatten().reduce(f64::max);
        let over = most.filter(|most| bps > *most);
        let estimate = Estimate {
            subject: Subject::leg(from, to),
            metric: Metric::AvailableBandwidth,
            value: over.unwrap_or(bps),
            spread: over.map_or(Some(spread), |_| None),
            method: Method::Train,
            age: now.since(at),
            reporter: NodeIndex(from),
            bound: if at_least || over.is_some() { Bound::AtLeast } else { Bound::Exact },
        };
        let is_news = self.table.insert(estimate, now).unwrap_or(false);
        if is_news {
            self.changes += 1;
            self.live.follow(leg, &self.table, &self.capped, now);
        }
        is_news
    }

    /// Between what and what trains found a leg to be, bit/s, where that is what is planned with; of a lower bound that
    /// raised it the upper end is infinite.
    pub(in crate::measure) fn range(&self, leg: Leg, now: Time) -> Option<(f64, f64)> {
        let (from, to) = (leg.0 as usize, leg.1 as usize);
        let found = spare(Subject::leg(leg.0, leg.1), &self.table, now)?;
        let shown = self.live.shown();
        let age = seconds(now).saturating_sub(shown.born.get(from, to)?).max(0);
        let is_younger = found.age < Duration::from_secs(age.unsigned_abs().into());
        if !is_younger || found.age > MAX_SPARE_AGE {
            return None;
        }
        let (value, spread) = (found.value, found.spread.unwrap_or(0.0));
        let planned = shown.rates.rate(from, to)?.as_bps() as f64;
        match found.bound {
            Bound::Exact => Some(((value - spread).max(0.0), value + spread)),
            Bound::AtLeast => (value.round() >= planned).then_some((value, f64::INFINITY)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Entry, *};
    use thalweg_units::Rate;

    fn at(s: u64) -> Time {
        Time::from_nanos(s * 1_000_000_000)
    }

    /// Both ends measured it.
    fn enter(known: &mut Known, leg: Leg, mbps: f64, s: u64) {
        let (bps, spread, method, bound) = (mbps * 1e6, None, Method::Transfer, Bound::Exact);
        let (reporter, is_sole, at) = (0, false, at(s));
        assert!(known.enter(&Entry { leg, bps, spread, method, bound, reporter, is_sole, at }, at));
    }

    #[test]
    fn trains_lower_a_leg_and_raise_it_no_higher_than_both_ends_have_shown() {
        let mut known = Known::new();
        known.resize(6, &[], at(0));
        let planned = |known: &Known| known.live().shown().rates.rate(0, 1).map(Rate::as_bps);
        enter(&mut known, (0, 1), 8.0, 10);
        let found = |known: &mut Known, mbps: f64, s: u64| {
            assert!(known.probed((0, 1), (mbps * 1e6, 5e5, false, at(s)), at(s)));
            planned(known)
        };
        assert_eq!(found(&mut known, 3.0, 20), Some(3_000_000));
        assert_eq!(found(&mut known, 90.0, 30), Some(8_000_000), "nobody has seen more");
        for (leg, mbps) in [((0, 2), 60.0), ((0, 3), 50.0), ((4, 1), 40.0), ((1, 5), 30.0)] {
            enter(&mut known, leg, mbps, 10);
        }
        assert_eq!(found(&mut known, 90.0, 40), Some(30_000_000), "what 1 has shown with two");
        assert_eq!(found(&mut known, 20.0, 50), Some(20_000_000));
        // What both ends measured later counts.
        enter(&mut known, (0, 1), 9.0, 60);
        assert_eq!(planned(&known), Some(9_000_000));
    }

    #[test]
    fn a_range_is_told_while_it_is_planned_with() {
        let mut known = Known::new();
        known.resize(6, &[], at(0));
        enter(&mut known, (0, 1), 8.0, 10);
        assert_eq!(known.range((0, 1), at(20)), None, "trains have told nothing");
        let found = |known: &mut Known, mbps: f64, at_least: bool, s: u64| {
            assert!(known.probed((0, 1), (mbps * 1e6, 5e5, at_least, at(s)), at(s)));
            known.range((0, 1), at(s + 1))
        };
        assert_eq!(found(&mut known, 3.0, false, 20), Some((2.5e6, 3.5e6)));
        assert_eq!(known.range((0, 1), at(20 + 3601)), None, "too long ago");
        assert_eq!(known.range((1, 0), at(21)), None);
        assert_eq!(found(&mut known, 9.0, false, 30), Some((8e6, f64::INFINITY)), "more than TCP");
        enter(&mut known, (0, 1), 7.0, 40);
        assert_eq!(known.range((0, 1), at(41)), None, "TCP has spoken later");
        assert_eq!(found(&mut known, 3.0, true, 50), None, "a lower bound below it says nothing");
    }
}
