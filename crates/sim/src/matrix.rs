//! Values between pairs of nodes.

use thalweg_plan::Graph;
use thalweg_units::Rate;

/// One value for each ordered pair of `n` nodes; a pair may be unknown, the diagonal always is.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    nodes: usize,
    /// Row-major, from × to; NaN: unknown.
    cells: Vec<f64>,
}

impl Matrix {
    /// Creates a matrix of `nodes` nodes without values.
    pub fn unknown(nodes: usize) -> Self {
        Self { nodes, cells: vec![f64::NAN; nodes * nodes] }
    }

    /// Creates a matrix with the value of each pair by `value(from, to)`; the diagonal stays unknown.
    pub fn from_fn(nodes: usize, mut value: impl FnMut(usize, usize) -> Option<f64>) -> Self {
        let mut matrix = Self::unknown(nodes);
        for from in 0..nodes {
            for to in (0..nodes).filter(|&to| to != from) {
                matrix.set(from, to, value(from, to));
            }
        }
        matrix
    }

    /// The number of nodes.
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// The value from one node to another, if known.
    pub fn get(&self, from: usize, to: usize) -> Option<f64> {
        Some(self.raw(from, to)).filter(|value| !value.is_nan())
    }

    /// The value, or NaN if unknown: for inner loops, in which NaN loses every comparison.
    pub fn raw(&self, from: usize, to: usize) -> f64 {
        self.cells[from * self.nodes + to]
    }

    /// Sets a value, or marks it as unknown; the diagonal stays unknown.
    pub fn set(&mut self, from: usize, to: usize, value: Option<f64>) {
        if from != to {
            self.cells[from * self.nodes + to] = value.unwrap_or(f64::NAN);
        }
    }

    /// The known values, as (from, to, value).
    pub fn known(&self) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
        let cells = self.cells.iter().enumerate().filter(|(_, value)| !value.is_nan());
        cells.map(|(at, &value)| (at / self.nodes, at % self.nodes, value))
    }

    /// The values among these nodes, in their order.
    pub fn restricted_to(&self, nodes: &[usize]) -> Self {
        Self::from_fn(nodes.len(), |from, to| self.get(nodes[from], nodes[to]))
    }

    /// The same values in the other direction.
    pub fn transposed(&self) -> Self {
        Self::from_fn(self.nodes, |from, to| self.get(to, from))
    }

    /// The graph on which plans are made; the values are rates in Mbit/s.
    pub fn graph(&self) -> Graph {
        let row = |from| (0..self.nodes).map(move |to| self.get(from, to).map(Rate::from_mbps));
        Graph::from_matrix(&(0..self.nodes).map(|from| row(from).collect()).collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_keeps_direction_and_what_is_unknown() {
        let mut all = Matrix::from_fn(4, |from, to| Some((10 * from + to) as f64));
        all.set(3, 1, None);
        let part = all.restricted_to(&[3, 1]);
        assert_eq!((part.get(0, 1), part.get(1, 0), part.get(0, 0)), (None, Some(13.0), None));
        assert_eq!(all.transposed().get(1, 2), Some(21.0));
        assert_eq!(all.known().count(), 11);
        assert_eq!(part.graph().rate(1, 0), Some(Rate::from_mbps(13.0)));
        assert_eq!(part.graph().rate(0, 1), None);
    }
}
