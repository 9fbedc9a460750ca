//! A value for some of the ordered pairs of nodes.

use super::row::Row;
use std::sync::Arc;

/// A value for some of the ordered pairs of `n` nodes, n < 2³².
///
/// Only the pairs that have a value are stored, by their first node and by their second. A copy shares all rows with
/// its original until either changes them: it costs O(n), not O(pairs).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sparse<T> {
    outs: Vec<Arc<Row<T>>>,
    ins: Vec<Arc<Row<T>>>,
    pairs: usize,
}

impl<T: Copy> Sparse<T> {
    /// Creates a map in which no pair has a value.
    pub fn new(nodes: usize) -> Self {
        let mut empty = Self { outs: vec![], ins: vec![], pairs: 0 };
        empty.grow(nodes);
        empty
    }

    /// Grows to `nodes` nodes; it does not shrink.
    pub fn grow(&mut self, nodes: usize) {
        let nodes = nodes.max(self.nodes());
        self.outs.resize_with(nodes, Arc::default);
        self.ins.resize_with(nodes, Arc::default);
    }

    /// The number of nodes, n.
    pub fn nodes(&self) -> usize {
        self.outs.len()
    }

    /// The number of pairs with a value.
    pub const fn pairs(&self) -> usize {
        self.pairs
    }

    /// Sets or removes the value of (i,j). Returns the previous one.
    ///
    /// Ends that are equal or out of range are ignored. O(d) for d pairs of these ends.
    pub fn set(&mut self, i: usize, j: usize, value: Option<T>) -> Option<T> {
        let nodes = self.nodes();
        let (Ok(from), Ok(to)) = (u32::try_from(i), u32::try_from(j)) else { return None };
        if i == j || i >= nodes || j >= nodes {
            return None;
        }
        let before = Arc::make_mut(&mut self.outs[i]).set(to, value, nodes);
        Arc::make_mut(&mut self.ins[j]).set(from, value, usize::MAX);
        self.pairs = self.pairs + usize::from(value.is_some()) - usize::from(before.is_some());
        before
    }

    /// The value of (i,j).
    pub fn get(&self, i: usize, j: usize) -> Option<T> {
        self.outs.get(i)?.get(j)
    }

    /// The pairs that begin at `i`, as (other end, value), ascending.
    pub fn outs(&self, i: usize) -> impl Iterator<Item = (usize, T)> {
        self.outs.get(i).into_iter().flat_map(|row| row.iter())
    }

    /// The pairs that end at `j`, as (other end, value), ascending.
    pub fn ins(&self, j: usize) -> impl Iterator<Item = (usize, T)> {
        self.ins.get(j).into_iter().flat_map(|row| row.iter())
    }

    pub(super) fn row_out(&self, i: usize) -> Option<&Row<T>> {
        self.outs.get(i).map(Arc::as_ref)
    }

    pub(super) fn row_in(&self, j: usize) -> Option<&Row<T>> {
        self.ins.get(j).map(Arc::as_ref)
    }

    /// Whether both have the same pairs that begin at `i`, with the same values: O(1) if one is a copy of the other and
    /// the row is unchanged.
    pub(super) fn has_same_outs(&self, other: &Self, i: usize) -> bool
    where
        T: PartialEq,
    {
        match (self.outs.get(i), other.outs.get(i)) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other) || own == other,
            (own, other) => own.is_none() && other.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_does_not_change_with_its_original() {
        let mut sparse = Sparse::new(2);
        sparse.set(0, 1, Some(5));
        let copy = sparse.clone();
        assert_eq!(sparse.set(0, 1, Some(7)), Some(5));
        sparse.grow(4);
        sparse.set(3, 1, Some(9));
        assert_eq!((copy.get(0, 1), copy.nodes(), copy.pairs()), (Some(5), 2, 1));
        assert_eq!(sparse.ins(1).collect::<Vec<_>>(), [(0, 7), (3, 9)]);
        assert!(!sparse.has_same_outs(&copy, 0) && sparse.has_same_outs(&copy, 1));
        sparse.grow(1);
        assert_eq!((sparse.nodes(), sparse.pairs()), (4, 2), "it does not shrink");
    }
}
