//! One node's measured legs in one direction.

/// A row that holds at least `1/WIDE` of all nodes also has a cell for each node, so that a look-up is one access; this
/// costs at most `16 · WIDE` bytes for each leg. Shorter rows are searched in few steps.
const WIDE: usize = 8;

/// Two rows whose lengths differ by at most this factor are read through in step.
const EVEN: usize = 8;

/// Legs by their other end, ascending.
#[derive(Clone, Debug)]
pub(super) struct Row<T> {
    ends: Vec<u32>,
    values: Vec<T>,
    /// Empty, or a cell for each node.
    cells: Vec<Option<T>>,
}

impl<T> Default for Row<T> {
    fn default() -> Self {
        Self { ends: vec![], values: vec![], cells: vec![] }
    }
}

/// The cells are only an index.
impl<T: PartialEq> PartialEq for Row<T> {
    fn eq(&self, other: &Self) -> bool {
        self.ends == other.ends && self.values == other.values
    }
}

impl<T: Eq> Eq for Row<T> {}

impl<T: Copy> Row<T> {
    /// The value of the leg to `end`.
    pub(super) fn get(&self, end: usize) -> Option<T> {
        if !self.cells.is_empty() {
            return self.cells.get(end).copied().flatten();
        }
        let at = self.ends.binary_search(&u32::try_from(end).ok()?).ok()?;
        self.values.get(at).copied()
    }

    /// Sets or removes the leg to `end`, one of `nodes`. Returns the previous value. O(length), O(1) amortised at the
    /// row's end.
    pub(super) fn set(&mut self, end: u32, value: Option<T>, nodes: usize) -> Option<T> {
        let at = self.ends.partition_point(|e| *e < end);
        let there = self.ends.get(at) == Some(&end);
        let before = if there { self.values.get(at).copied() } else { None };
        match (value, there) {
            (Some(value), true) => self.values[at] = value,
            (Some(value), false) => {
                self.ends.insert(at, end);
                self.values.insert(at, value);
            }
            (None, true) => {
                self.ends.remove(at);
                self.values.remove(at);
            }
            (None, false) => {}
        }
        self.index(end, value, nodes);
        before
    }

    /// Keeps the cells in step, with hysteresis, so that they are not rebuilt each time.
    fn index(&mut self, end: u32, value: Option<T>, nodes: usize) {
        if let Some(cell) = self.cells.get_mut(end as usize) {
            *cell = value;
            if self.ends.len() * WIDE * 2 < nodes {
                self.cells = Vec::new();
            }
        } else if self.ends.len() * WIDE >= nodes {
            self.cells = vec![None; nodes];
            for (end, value) in self.ends.iter().zip(&self.values) {
                self.cells[*end as usize] = Some(*value);
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

    /// The values, in the order of [`ends`](Self::ends).
    pub(super) fn values(&self) -> &[T] {
        &self.values
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, T)> {
        self.ends.iter().map(|e| *e as usize).zip(self.values.iter().copied())
    }

    /// The ends that two rows have in common, as (end, own value, other's value), ascending.
    ///
    /// O(sum of lengths), or the look-ups of the shorter row in the other if that is less.
    pub(super) fn shared(&self, other: &Self) -> impl Iterator<Item = (usize, T, T)> {
        let (mut a, mut b) = (0, 0);
        let lengths = (self.len(), other.len());
        let is_even = lengths.0.max(lengths.1) <= EVEN * lengths.0.min(lengths.1);
        std::iter::from_fn(move || {
            loop {
                let (left, right) = (*self.ends.get(a)?, *other.ends.get(b)?);
                if left == right {
                    let found = (left as usize, self.values[a], other.values[b]);
                    (a, b) = (a + 1, b + 1);
                    return Some(found);
                }
                if is_even {
                    // Avoids a branch on which end is less, which no processor could predict.
                    a += usize::from(left < right);
                    b += usize::from(right < left);
                } else if left < right {
                    a = gallop(&self.ends, a, right);
                } else {
                    b = gallop(&other.ends, b, left);
                }
            }
        })
    }
}

/// The first position from `from` on that holds at least `wanted`. Steps double, then a search follows, so that a short
/// row meets a long one in logarithmic time.
fn gallop(ends: &[u32], from: usize, wanted: u32) -> usize {
    let mut step = 1;
    while ends.get(from + step).is_some_and(|e| *e < wanted) {
        step *= 2;
    }
    let (low, high) = (from + step / 2, (from + step).min(ends.len()));
    low + ends[low..high].partition_point(|e| *e < wanted)
}
