//! Pathload's search for the range of available bandwidth, by what whole fleets said of a rate.

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

/// What is known, in bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// At least so much is available.
    low: f64,
    /// At most so much; `None`: no rate was above yet.
    high: Option<f64>,
    /// The least and the greatest rate that was grey.
    grey: Option<(f64, f64)>,
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
        Self { low: 0.0, high: None, grey: None, resolution, grey_resolution, most, least }
    }

    /// A fleet at this rate said so.
    pub fn learn(&mut self, rate: f64, verdict: Verdict) {
        match verdict {
            Verdict::Above => self.high = Some(rate),
            Verdict::Below => self.low = rate,
            Verdict::Grey => {
                let (least, most) = self.grey.unwrap_or((rate, rate));
                self.grey = Some((least.min(rate), most.max(rate)));
            }
        }
        // The path changed where the newest word and the older ones cannot both be: the newest counts.
        if self.high.is_some_and(|high| high <= self.low) {
            match verdict {
                Verdict::Above => self.low = 0.0,
                _ => self.high = None,
            }
        }
        self.grey = self
            .grey
            .filter(|(least, most)| *least > self.low && self.high.is_none_or(|high| *most < high));
    }

    /// The next rate to try; `None`: it is found.
    pub fn next(&self, now: f64) -> Option<f64> {
        let next = match (self.high, self.grey) {
            (None, None) => 2.0 * now,
            (None, Some((_, most))) => 1.5 * most,
            (Some(high), None) => {
                (high - self.low > self.resolution).then(|| f64::midpoint(self.low, high))?
            }
            (Some(high), Some((least, most))) => {
                let (above, below) = (high - most, least - self.low);
                match () {
                    () if high - self.low <= self.resolution => return None,
                    () if above > self.grey_resolution => f64::midpoint(most, high),
                    () if below > self.grey_resolution => f64::midpoint(self.low, least),
                    () => return None,
                }
            }
        };
        match self.high {
            None if now >= self.most => None,
            Some(high) if high <= self.least => None,
            _ => Some(next.clamp(self.least, self.most)),
        }
    }

    /// The range, and whether the true one may lie above it: this host cannot send faster.
    pub fn range(&self) -> (f64, f64, bool) {
        match self.high {
            Some(high) => (self.low, high, false),
            None => (self.low, self.most.max(self.low), true),
        }
    }

    /// What is known by now.
    pub fn between(&self) -> (f64, Option<f64>) {
        (self.low, self.high)
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
            search.learn(now, verdict);
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
    fn the_newest_word_counts_where_words_differ() {
        let mut search = Search::new(0.2, 0.5, 0.1, 100.0);
        search.learn(4.0, Verdict::Below);
        search.learn(8.0, Verdict::Above);
        search.learn(3.0, Verdict::Above);
        assert_eq!(search.between(), (0.0, Some(3.0)));
        search.learn(5.0, Verdict::Below);
        assert_eq!(search.between(), (5.0, None));
    }
}
