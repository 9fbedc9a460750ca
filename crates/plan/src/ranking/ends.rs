//! One relay's gains by the ends of its pairs, and what remains without some of the ends.

use super::mean::Gains;

/// This share of the ends, rounded up, may collude with a relay: the ends that lift it most do not count.
const LEAGUE: f64 = 0.1;

/// One relay's pairs, and the gains at each end.
pub(super) struct Ends {
    pairs: Vec<(usize, usize, u64)>,
    gains: Vec<Gains>,
    /// Ends with any pair.
    touched: Vec<usize>,
    /// Ends that are being left out.
    is_out: Vec<bool>,
}

impl Ends {
    /// Creates a record without pairs, for `nodes` nodes.
    pub fn new(nodes: usize) -> Self {
        let (gains, is_out) = (vec![Gains::default(); nodes], vec![false; nodes]);
        Self { pairs: vec![], gains, touched: vec![], is_out }
    }

    /// Adds a pair with its gain to the gains of both ends.
    pub fn add(&mut self, i: usize, j: usize, gain: u64) {
        self.pairs.push((i, j, gain));
        for end in [i, j] {
            if self.gains[end] == Gains::default() {
                self.touched.push(end);
            }
            self.gains[end].add(gain);
        }
    }

    /// What remains of `all` without the end whose absence lowers the mean most, or without the league of ends that
    /// lift it most, whichever has the lower mean. Forgets the pairs.
    pub fn least(&mut self, all: Gains) -> Gains {
        let mut least = all;
        for end in &self.touched {
            let rest = all.without(self.gains[*end]);
            if rest.mean() < least.mean() || rest.pairs() == 0 {
                least = rest;
            }
        }
        let rest = self.without_league(all);
        if rest.pairs() > 0 && rest.mean() < least.mean() {
            least = rest;
        }
        self.pairs.clear();
        self.touched.drain(..).for_each(|end| self.gains[end] = Gains::default());
        least
    }

    /// The gains of the pairs without an end in the league, which is the ends with the greatest surplus. O(pairs).
    fn without_league(&mut self, all: Gains) -> Gains {
        let many = (LEAGUE * self.touched.len() as f64).ceil() as usize;
        if many == 0 || many >= self.touched.len() {
            return all;
        }
        let mean = all.mean();
        let surplus = |end: &usize| self.gains[*end].surplus(mean);
        // Ties go by index, in whatever order the pairs came.
        let by_surplus = |a: &usize, b: &usize| surplus(b).total_cmp(&surplus(a)).then(a.cmp(b));
        self.touched.select_nth_unstable_by(many - 1, by_surplus);
        let league = &self.touched[..many];
        league.iter().for_each(|end| self.is_out[*end] = true);
        let mut rest = Gains::default();
        for (i, j, gain) in &self.pairs {
            if !self.is_out[*i] && !self.is_out[*j] {
                rest.add(*gain);
            }
        }
        league.iter().for_each(|end| self.is_out[*end] = false);
        rest
    }
}
