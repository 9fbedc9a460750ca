//! Pathload's search for the range of available bandwidth, by what whole fleets said of a rate.

use super::growth::{Growth, available};

/// What a fleet says of its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is more than what is available.
    Above,
    /// It is less.
    Below,
    /// Sometimes more, sometimes less.
    Grey,
}

/// A word on a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Word {
    /// bit/s.
    rate: f64,
    /// In which era it was said.
    era: u32,
    /// Of one that is above: how fast delays grew, and in which era that was seen.
    growth: Option<(u32, Growth)>,
}

/// Fleets in a row that narrow nothing end it: the host does not keep the rates that it is asked for.
const IDLE: u32 = 4;

/// So many words in a row that all point to one end of the range are reason to ask for that end again: it may have been
/// noise, and by chance that happens to one search in eight.
const POINTING: u32 = 4;

/// What is known, in bit/s.
///
/// Words that cannot both be true begin an *era*: the path changed, or one of them was noise. The newest counts, and what it
/// does not contradict is kept, but is asked for again before anything is built on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// At least so much is available.
    below: Vec<Word>,
    /// At most so much; none: no rate was above yet.
    above: Vec<Word>,
    /// The least and the greatest rate that was grey.
    grey: Option<(f64, f64)>,
    era: u32,
    /// Fleets since it began, and since anything was narrowed.
    fleets: u32,
    idle: u32,
    last: Option<Verdict>,
    /// So many words in a row were the last one's.
    same: u32,
    /// The end: so near are the ends of the range.
    resolution: f64,
    /// Or the grey region's ends to the range's.
    grey_resolution: f64,
    /// The most that this host can send.
    most: f64,
    /// The least that is worth sending.
    least: f64,
}

impl Search {
    /// With these resolutions, between these rates of the host.
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

    fn low(&self) -> Word {
        let none = Word { rate: 0.0, era: self.era, growth: None };
        self.below
            .iter()
            .copied()
            .fold(none, |low, word| if word.rate > low.rate { word } else { low })
    }

    fn high(&self) -> Option<Word> {
        self.above.iter().copied().min_by(|one, other| one.rate.total_cmp(&other.rate))
    }

    /// A fleet at this rate said so, and its delays grew so fast.
    pub fn learn(&mut self, rate: f64, verdict: Verdict, growth: Option<Growth>) {
        let before = (self.low().rate, self.high().map(|high| high.rate), self.grey, self.era);
        let contradicted = match verdict {
            Verdict::Above => self.low().rate >= rate,
            Verdict::Below => self.high().is_some_and(|high| high.rate <= rate),
            Verdict::Grey => false,
        };
        if contradicted {
            (self.era, self.fleets) = (self.era + 1, 0);
            self.below.retain(|word| verdict == Verdict::Below || word.rate < rate);
            self.above.retain(|word| verdict == Verdict::Above || word.rate > rate);
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

    /// What is available, and what of it is riders', bit/s, by how fast delays grew in fleets of this era that were above, on a path of
    /// which a burst came out at this rate; `None`: none was, or too much was lost.
    pub fn by_growth(&self, burst: f64) -> Option<(f64, f64)> {
        let of_now = |word: &Word| word.growth.filter(|(era, _)| *era == self.era);
        let growths: Vec<Growth> = self.above.iter().filter_map(of_now).map(|(_, of)| of).collect();
        available(&growths, burst)
    }

    /// What is above a rate that is too high is so, too; and what is that near to a word is one with it.
    fn note(&mut self, rate: f64, verdict: Verdict, growth: Option<Growth>) {
        let era = self.era;
        let near = self.resolution;
        match verdict {
            Verdict::Above => {
                let same = self.above.iter_mut().filter(|word| word.rate + near >= rate);
                same.for_each(|word| word.era = era);
                self.above.push(Word { rate, era, growth: growth.map(|of| (era, of)) });
            }
            Verdict::Below => {
                let same = self.below.iter_mut().filter(|word| word.rate - near <= rate);
                same.for_each(|word| word.era = era);
                self.below.push(Word { rate, era, growth: None });
            }
            Verdict::Grey => {
                let (least, most) = self.grey.unwrap_or((rate, rate));
                self.grey = Some((least.min(rate), most.max(rate)));
            }
        }
    }

    /// An end of the range that is to be asked for again: of another era, as soon as a second word points to it and before
    /// the end; and any that all of the last words point to.
    fn doubtful(&self, is_found: bool) -> Option<f64> {
        let is_so = |word: &Word, points: Verdict| {
            let does = self.last == Some(points);
            let is_stale = word.era != self.era && (is_found || (does && self.fleets >= 2));
            is_stale || (does && !is_found && self.same == POINTING)
        };
        let low = Some(self.low()).filter(|low| low.rate > 0.0 && is_so(low, Verdict::Above));
        let high = self.high().filter(|high| is_so(high, Verdict::Below));
        low.or(high).map(|word| word.rate)
    }

    /// The next rate to try; `None`: it is found.
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
            // Whole bytes and microseconds make what is sent a little less than what was asked for.
            None if now + self.resolution >= self.most => None,
            Some(high) if high <= self.least => None,
            _ => Some(self.sendable(next)),
        }
    }

    /// The nearest rate that this host can send.
    pub fn sendable(&self, rate: f64) -> f64 {
        rate.clamp(self.least, self.most)
    }

    /// The range, and whether the true one may lie above it: this host cannot send faster.
    pub fn range(&self) -> (f64, f64, bool) {
        let low = self.low().rate;
        match self.high() {
            Some(high) => (low, high.rate, false),
            None => (low, self.most.max(low), true),
        }
    }

    /// What is known by now.
    pub fn between(&self) -> (f64, Option<f64>) {
        (self.low().rate, self.high().map(|high| high.rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rates that are tried until it is found, from `first`, where what is available is between these.
    fn tried(first: f64, (low, high): (f64, f64), most: f64) -> (Vec<f64>, Search) {
        let mut search = Search::new(0.2, 0.5, 0.1, most);
        let (mut now, mut tried) = (first, Vec::new());
        loop {
            tried.push(now);
            assert!(tried.len() < 60, "{tried:?}");
            let verdict = match now {
                _ if now < low => Verdict::Below,
                _ if now > high => Verdict::Above,
                _ => Verdict::Grey,
            };
            search.learn(now, verdict, None);
            match search.next(now) {
                Some(next) => now = next,
                None => return (tried, search),
            }
        }
    }

    #[test]
    fn it_doubles_and_then_bisects() {
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
    fn a_host_that_is_slower_than_the_path_says_at_least() {
        let (rates, search) = tried(1.0, (500.0, 500.0), 100.0);
        assert_eq!((rates.last(), search.range().2), (Some(&100.0), true));
    }

    #[test]
    fn the_newest_word_counts_where_words_differ_and_older_ones_are_asked_for_again() {
        let mut search = Search::new(0.2, 0.5, 0.1, 100.0);
        search.learn(2.0, Verdict::Below, None);
        search.learn(4.0, Verdict::Below, None);
        search.learn(8.0, Verdict::Above, None);
        search.learn(3.0, Verdict::Above, None);
        // Not below 4, then; 2 was not contradicted.
        assert_eq!(search.between(), (2.0, Some(3.0)));
        assert_eq!(search.next(3.0), Some(2.5));
        search.learn(2.5, Verdict::Above, None);
        assert_eq!(search.next(2.5), Some(2.0), "a second word points to it");
        search.learn(2.01, Verdict::Below, None);
        assert_eq!(search.between(), (2.01, Some(2.5)));
        search.learn(5.0, Verdict::Below, None);
        assert_eq!(search.between(), (5.0, Some(8.0)));
        search.learn(6.5, Verdict::Below, None);
        assert_eq!(search.next(6.5), Some(8.0));
        search.learn(7.9, Verdict::Above, None);
        assert_eq!((search.between(), search.next(7.9)), ((6.5, Some(7.9)), Some(7.2)));
    }

    /// Fleets, and the range's middle, where so much is available before the fourth fleet and after it, and one word is wrong.
    fn searched((before, after): (f64, f64), wrong: u32) -> (u32, f64, f64) {
        let mut search = Search::new(0.2, 0.5, 0.1, 100.0);
        let (mut now, mut fleets) = (10.0, 0);
        loop {
            let left = if fleets < 4 { before } else { after };
            let says =
                if (now < left) == (fleets == wrong) { Verdict::Above } else { Verdict::Below };
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
    fn one_wrong_word_costs_a_few_fleets_and_a_path_that_changed_is_found() {
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
    fn a_host_that_keeps_no_rate_ends_it() {
        let mut search = Search::new(0.2, 0.5, 0.1, 100.0);
        search.learn(8.0, Verdict::Above, None);
        search.learn(4.0, Verdict::Below, None);
        (0..IDLE).for_each(|_| search.learn(4.0, Verdict::Below, None));
        assert_eq!((search.next(4.0), search.between()), (None, (4.0, Some(8.0))));
    }
}
