//! One relay's gains by the ends of its pairs, and what stays without some of them.

use super::mean::Gains;

/// This share of the ends, rounded up, may be in league with a relay: those who lift it most
/// do not count.
const LEAGUE: f64 = 0.1;

/// One relay's pairs, and what each end adds.
pub(super) struct Ends {
    pairs: Vec<(usize, usize, u64)>,
    gains: Vec<Gains>,
    touched: Vec<usize>,
    is_out: Vec<bool>,
}

impl Ends {
    /// No pairs, between so many nodes.
    pub fn new(nodes: usize) -> Self {
        let (gains, is_out) = (vec![Gains::default(); nodes], vec![false; nodes]);
        Self { pairs: vec![], gains, touched: vec![], is_out }
    }

    /// One more pair.
    pub fn add(&mut self, i: usize, j: usize, gain: u64) {
        self.pairs.push((i, j, gain));
        for end in [i, j] {
            if self.gains[end] == Gains::default() {
                self.touched.push(end);
            }
            self.gains[end].add(gain);
        }
    }

    /// What stays of `all` without the end whose absence lowers the mean most, or without the
    /// league of ends that lift it most, whichever is less; forgets the pairs.
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

    /// The pairs that no end of the greatest surplus is in. O(pairs).
    fn without_league(&mut self, all: Gains) -> Gains {
        let many = (LEAGUE * self.touched.len() as f64).ceil() as usize;
        if many == 0 || many >= self.touched.len() {
            return all;
        }
        let mean = all.mean();
        let surplus = |end: &usize| self.gains[*end].surplus(mean);
        // Equals by index, whatever the order in which the pairs came.
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
