//! One node's measured legs in one direction.

use thalweg_units::Rate;

/// A row with at least `1/WIDE` of all nodes in it also has a cell for each of them, so that
/// looking up is one access; it costs at most `16 · WIDE` bytes for each leg. Shorter rows
/// are searched, in few steps.
const WIDE: usize = 8;

/// Legs by their other end, ascending.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    ends: Vec<u32>,
    rates: Vec<Rate>,
    /// Empty, or a cell for each node.
    cells: Vec<Option<Rate>>,
}

/// The cells are an index alone.
impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.ends == other.ends && self.rates == other.rates
    }
}

impl Eq for Row {}

impl Row {
    /// The leg's rate.
    pub(super) fn get(&self, end: usize) -> Option<Rate> {
        if !self.cells.is_empty() {
            return self.cells.get(end).copied().flatten();
        }
        let at = self.ends.binary_search(&u32::try_from(end).ok()?).ok()?;
        self.rates.get(at).copied()
    }

    /// Sets or forgets the leg to `end`, one of `nodes`; what was there before.
    /// O(length), O(1) amortised at its end.
    pub(super) fn set(&mut self, end: u32, rate: Option<Rate>, nodes: usize) -> Option<Rate> {
        let at = self.ends.partition_point(|e| *e < end);
        let there = self.ends.get(at) == Some(&end);
        let before = if there { self.rates.get(at).copied() } else { None };
        match (rate, there) {
            (Some(rate), true) => self.rates[at] = rate,
            (Some(rate), false) => {
                self.ends.insert(at, end);
                self.rates.insert(at, rate);
            }
            (None, true) => {
                self.ends.remove(at);
                self.rates.remove(at);
            }
            (None, false) => {}
        }
        self.index(end, rate, nodes);
        before
    }

    /// Keeps the cells in step; with hysteresis, lest they be made anew each time.
    fn index(&mut self, end: u32, rate: Option<Rate>, nodes: usize) {
        if let Some(cell) = self.cells.get_mut(end as usize) {
            *cell = rate;
            if self.ends.len() * WIDE * 2 < nodes {
                self.cells = Vec::new();
            }
        } else if self.ends.len() * WIDE >= nodes {
            self.cells = vec![None; nodes];
            for (end, rate) in self.ends.iter().zip(&self.rates) {
                self.cells[*end as usize] = Some(*rate);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The other ends, ascending.
    pub(super) fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The rate of the leg at this position of [`Row::ends`].
    pub(super) fn rate_at(&self, position: usize) -> Rate {
        self.rates[position]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, Rate)> {
        self.ends.iter().map(|e| *e as usize).zip(self.rates.iter().copied())
    }

    /// What two rows have in common: end, own rate, other's rate; ascending.
    ///
    /// O(sum of lengths), or the shorter one's look-ups in the other if that is less.
    pub(super) fn shared(&self, other: &Self) -> impl Iterator<Item = (usize, Rate, Rate)> {
        let (mut a, mut b) = (0, 0);
        std::iter::from_fn(move || {
            loop {
                let (left, right) = (*self.ends.get(a)?, *other.ends.get(b)?);
                match left.cmp(&right) {
                    std::cmp::Ordering::Less => a = gallop(&self.ends, a, right),
                    std::cmp::Ordering::Greater => b = gallop(&other.ends, b, left),
                    std::cmp::Ordering::Equal => {
                        let found = (left as usize, self.rates[a], other.rates[b]);
                        (a, b) = (a + 1, b + 1);
                        return Some(found);
                    }
                }
            }
        })
    }
}

/// The first position after `from` that holds at least `wanted`: steps that double, then a
/// search, so that a short row meets a long one in logarithmic time.
fn gallop(ends: &[u32], from: usize, wanted: u32) -> usize {
    let mut step = 1;
    while ends.get(from + step).is_some_and(|e| *e < wanted) {
        step *= 2;
    }
    let (low, high) = (from + step / 2, (from + step).min(ends.len()));
    low + ends[low..high].partition_point(|e| *e < wanted)
}
