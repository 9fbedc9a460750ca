//! Pathload's search for the range of available bandwidth, from the verdicts of fleets.

use super::growth::{Growth, available};

/// A fleet's verdict on its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateVerdict {
    /// The rate is above the available bandwidth.
    Above,
    /// The rate is below it.
    Below,
    /// The rate is sometimes above, sometimes below it.
    Grey,
}

/// A rate that was tested.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TestedRate {
    /// bit/s.
    rate: f64,
    /// The era of the verdict.
    era: u32,
    /// For a rate that is above: the growth of delays, and the era in which it was seen.
    growth: Option<(u32, Growth)>,
}

/// The number of fleets in a row without progress that ends the search: the host does not keep the requested rates.
const IDLE: u32 = 4;

/// After this many verdicts in a row that point to the same end of the range, that end is tested again: it may have
/// been noise. By chance this happens to one search in eight.
const POINTING: u32 = 4;

/// What is known so far; rates are in bit/s.
///
/// Two verdicts that contradict each other begin a new *era*: the path changed, or one of them was noise. The newest
/// verdict counts. Older ones that it does not contradict are kept, but they are tested again before the search relies
/// on them.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// Rates that are below the available bandwidth.
    below: Vec<TestedRate>,
    /// Rates that are above it; empty: none was found yet.
    above: Vec<TestedRate>,
    /// The lowest and the highest grey rate.
    grey: Option<(f64, f64)>,
    era: u32,
    /// The number of fleets since the era began, and since the last progress.
    fleets: u32,
    idle: u32,
    last: Option<RateVerdict>,
    /// The number of verdicts in a row that were equal to the last one.
    same: u32,
    /// The search ends when the ends of the range are this close …
    resolution: f64,
    /// … or when the ends of the grey region are this close to those of the range.
    grey_resolution: f64,
    /// The highest rate that this host can send.
    most: f64,
    /// The lowest rate that is worth sending.
    least: f64,
}

impl Search {
    /// Creates a search with these resolutions, between these rates of the host.
    pub fn new(resolution: f64, grey_resolution: f64, least: f64, most: f64) -> Self {
        let (below, above, grey, last) = Default::default();
        let (era, fleets, idle, same) = (0, 0, 0, 0);
        Self {
            below,
            above,
            grey,
            era,
            fleets,
            idle,
            last,
            same,
            resolution,
            grey_resolution,
            most,
            least,
        }
    }

    fn low(&self) -> TestedRate {
        let none = TestedRate { rate: 0.0, era: self.era, growth: None };
        self.below
            .iter()
            .copied()
            .fold(none, |low, tested| if tested.rate > low.rate { tested } else { low })
    }

    fn high(&self) -> Option<TestedRate> {
        self.above.iter().copied().min_by(|one, other| one.rate.total_cmp(&other.rate))
    }

    /// Records a fleet's verdict on this rate, and the growth of its delays.
    pub fn learn(&mut self, rate: f64, verdict: RateVerdict, growth: Option<Growth>) {
        let before = (self.low().rate, self.high().map(|high| high.rate), self.grey, self.era);
        let contradicted = match verdict {
            RateVerdict::Above => self.low().rate >= rate,
            RateVerdict::Below => self.high().is_some_and(|high| high.rate <= rate),
            RateVerdict::Grey => false,
        };
        if contradicted {
            (self.era, self.fleets) = (self.era + 1, 0);
            self.below.retain(|tested| verdict == RateVerdict::Below || tested.rate < rate);
            self.above.retain(|tested| verdict == RateVerdict::Above || tested.rate > rate);
        }
        self.note(rate, verdict, growth);
        let (low, high) = (self.low().rate, self.high().map(|high| high.rate));
        self.grey =
            self.grey.filter(|(least, most)| *least > low && high.is_none_or(|high| *most < high));
        self.same = if self.last == Some(verdict) { self.same + 1 } else { 1 };
        (self.fleets, self.last) = (self.fleets + 1, Some(verdict));
        let is_same = before == (low, high, self.grey, self.era);
        self.idle = if is_same { self.idle + 1 } else { 0 };
    }

    /// The available bandwidth and the riders' part of it, bit/s, from the growth of delays in the fleets of this era
    /// that were above it; `burst` is the rate at which a burst arrived. `None`: there was no such fleet, or too much
    /// was lost.
    pub fn by_growth(&self, burst: f64) -> Option<(f64, f64)> {
        let of_now = |tested: &TestedRate| tested.growth.filter(|(era, _)| *era == self.era);
        let growths: Vec<Growth> = self.above.iter().filter_map(of_now).map(|(_, of)| of).collect();
        available(&growths, burst)
    }

    /// Records a verdict. It confirms those on rates further away on the same side, and on rates within the resolution:
    /// they move to the present era.
    fn note(&mut self, rate: f64, verdict: RateVerdict, growth: Option<Growth>) {
        let era = self.era;
        let near = self.resolution;
        match verdict {
            RateVerdict::Above => {
                let same = self.above.iter_mut().filter(|tested| tested.rate + near >= rate);
                same.for_each(|tested| tested.era = era);
                self.above.push(TestedRate { rate, era, growth: growth.map(|of| (era, of)) });
            }
            RateVerdict::Below => {
                let same = self.below.iter_mut().filter(|tested| tested.rate - near <= rate);
                same.for_each(|tested| tested.era = era);
                self.below.push(TestedRate { rate, era, growth: None });
            }
            RateVerdict::Grey => {
                let (least, most) = self.grey.unwrap_or((rate, rate));
                self.grey = Some((least.min(rate), most.max(rate)));
            }
        }
    }

    /// An end of the range that has to be tested again. An end of another era is tested again once a second verdict
    /// points to it, and before the search ends; any end, once all of the last verdicts point to it.
    fn doubtful(&self, is_found: bool) -> Option<f64> {
        let is_so = |tested: &TestedRate, points: RateVerdict| {
            let does = self.last == Some(points);
            let is_stale = tested.era != self.era && (is_found || (does && self.fleets >= 2));
            is_stale || (does && !is_found && self.same == POINTING)
        };
        let low = Some(self.low()).filter(|low| low.rate > 0.0 && is_so(low, RateVerdict::Above));
        let high = self.high().filter(|high| is_so(high, RateVerdict::Below));
        low.or(high).map(|tested| tested.rate)
    }

    /// The next rate to try; `None`: the search is over.
    pub fn next(&self, now: f64) -> Option<f64> {
        if self.idle >= IDLE {
            return None;
        }
        self.doubtful(false).or_else(|| self.within(now)).or_else(|| self.doubtful(true))
    }

    fn within(&self, now: f64) -> Option<f64> {
        let (low, high) = (self.low().rate, self.high().map(|high| high.rate));
        let next = match (high, self.grey) {
            (None, None) => 2.0 * now,
            (None, Some((_, most))) => 1.5 * most,
            (Some(high), None) => {
                (high - low > self.resolution).then(|| f64::midpoint(low, high))?
            }
            (Some(high), Some((least, most))) => {
                let (above, below) = (high - most, least - low);
                match () {
                    () if high - low <= self.resolution => return None,
                    () if above > self.grey_resolution => f64::midpoint(most, high),
                    () if below > self.grey_resolution => f64::midpoint(low, least),
                    () => return None,
                }
            }
        };
        match high {
            // Whole bytes and microseconds make the sent rate slightly lower than the requested one.
            None if now + self.resolution >= self.most => None,
            Some(high) if high <= self.least => None,
            _ => Some(self.sendable(next)),
        }
    }

    /// The nearest rate that this host can send.
    pub fn sendable(&self, rate: f64) -> f64 {
        rate.clamp(self.least, self.most)
    }

    /// The range, and whether the true value may lie above it because this host cannot send faster.
    pub fn range(&self) -> (f64, f64, bool) {
        let low = self.low().rate;
        match self.high() {
            Some(high) => (low, high.rate, false),
            None => (low, self.most.max(low), true),
        }
    }

    /// The present ends of the range.
    pub fn between(&self) -> (f64, Option<f64>) {
        (self.low().rate, self.high().map(|high| high.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates that are tried from `first` until the search ends, and the search, if the available bandwidth varies
    /// between these limits.
    fn tried(first: f64, (low, high): (f64, f64), most: f64) -> (Vec<f64>, Search) {
        let mut search = Search::new(0.2, 0.5, 0.1, most);
        let (mut now, mut tried) = (first, Vec::new());
        loop {
            tried.push(now);
            assert!(tried.len() < 60, "{tried:?}");
            let verdict = match now {
                _ if now < low => RateVerdict::Below,
                _ if now > high => RateVerdict::Above,
                _ => RateVerdict::Grey,
            };
            search.learn(now, verdict, None);
            match search.next(now) {
                Some(next) => now = next,
                None => return (tried, search),
            }
        }
    }

    #[test]
    fn rates_double_and_then_bisect() {
        let (rates, search) = tried(1.0, (6.0, 6.0), 100.0);
        assert_eq!(rates[..5], [1.0, 2.0, 4.0, 8.0, 6.0]);
        let (low, high, is_bound) = search.range();
        assert!(low <= 6.0 && high >= 6.0 && high - low <= 2.0 && !is_bound, "{search:?}");
        let (_, down) = tried(10.0, (0.7, 0.7), 100.0);
        assert!(down.range().0 <= 0.7 && down.range().1 >= 0.7 && down.range().1 < 1.0);
    }

    #[test]
    fn a_grey_region_is_found_from_both_sides() {
        let (_, search) = tried(1.0, (4.0, 7.0), 100.0);
        let (low, high, _) = search.range();
        assert!((3.0..=4.0).contains(&low) && (7.0..8.0).contains(&high), "{search:?}");
    }

    #[test]
    fn a_host_that_is_slower_than_the_path_gives_a_lower_bound() {
        let (rates, search) = tried(1.0, (500.0, 500.0), 100.0);
        assert_eq!((rates.last(), search.range().2), (Some(&100.0), true));
    }

    #[test]
    fn of_contradictory_verdicts_the_newest_counts_and_older_ones_are_tested_again() {
        let mut search = Search::new(0.2, 0.5, 0.1, 100.0);
        search.learn(2.0, RateVerdict::Below, None);
        search.learn(4.0, RateVerdict::Below, None);
        search.learn(8.0, RateVerdict::Above, None);
        search.learn(3.0, RateVerdict::Above, None);
        // So 4 is not below; 2 was not contradicted.
        assert_eq!(search.between(), (2.0, Some(3.0)));
        assert_eq!(search.next(3.0), Some(2.5));
        search.learn(2.5, RateVerdict::Above, None);
        assert_eq!(search.next(2.5), Some(2.0), "a second word points to it");
        search.learn(2.01, RateVerdict::Below, None);
        assert_eq!(search.between(), (2.01, Some(2.5)));
        search.learn(5.0, RateVerdict::Below, None);
        assert_eq!(search.between(), (5.0, Some(8.0)));
        search.learn(6.5, RateVerdict::Below, None);
        assert_eq!(search.next(6.5), Some(8.0));
        search.learn(7.9, RateVerdict::Above, None);
        assert_eq!((search.between(), search.next(7.9)), ((6.5, Some(7.9)), Some(7.2)));
    }

    /// The number of fleets, the range's middle and the value by growth, if this much is available before the fifth
    /// fleet and from it on, and one verdict is wrong.
    fn searched((before, after): (f64, f64), wrong: u32) -> (u32, f64, f64) {
        let mut search = Search::new(0.2, 0.5, 0.1, 100.0);
        let (mut now, mut fleets) = (10.0, 0);
        loop {
            let left = if fleets < 4 { before } else { after };
            let says = if (now < left) == (fleets == wrong) {
                RateVerdict::Above
            } else {
                RateVerdict::Below
            };
            let slope = (now - left).max(0.0) / 10.0;
            search.learn(now, says, Some(Growth { rate: now, slope, hidden: 0.0, packets: 1e3 }));
            fleets += 1;
            let Some(next) = search.next(now) else { break };
            now = next;
        }
        let (low, high, _) = search.range();
        assert!(high - low < 0.5, "{search:?}");
        (fleets, f64::midpoint(low, high), search.by_growth(10.0).unwrap().0)
    }

    #[test]
    fn one_wrong_verdict_costs_a_few_fleets_and_a_changed_path_is_detected() {
        for wrong in 0..8 {
            let (fleets, found, grown) = searched((6.0, 6.0), wrong);
            assert!((grown - 6.0).abs() < 1e-6, "{wrong}: {grown}");
            assert!((found / 6.0 - 1.0).abs() < 0.1 && fleets < 25, "{wrong}: {found} by {fleets}");
        }
        let (fleets, found, grown) = searched((6.0, 2.0), 99);
        assert!((grown - 2.0).abs() < 1e-6, "{grown}: of the path as it is now");
        assert!((found / 2.0 - 1.0).abs() < 0.1 && fleets < 20, "{found} by {fleets}");
    }

    #[test]
    fn a_host_that_keeps_no_rate_ends_the_search() {
        let mut search = Search::new(0.2, 0.5, 0.1, 100.0);
        search.learn(8.0, RateVerdict::Above, None);
        search.learn(4.0, RateVerdict::Below, None);
        (0..IDLE).for_each(|_| search.learn(4.0, RateVerdict::Below, None));
        assert_eq!((search.next(4.0), search.between()), (None, (4.0, Some(8.0))));
    }
}
