//! Who failed, and is not used any more.

use std::collections::{BTreeMap, BTreeSet};

/// After so many failures in a row it is left alone; the first may be a restart.
const PATIENCE: u32 = 2;

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspect {
    /// A participant, seen from here.
    Node(u32),
    /// The way from one to another, or either of them.
    Leg(u32, u32),
}

/// Failures of participants and legs.
#[derive(Clone, Debug, Default)]
pub struct Blame {
    failures: BTreeMap<Suspect, u32>,
    /// By participant: the sources whose word is another than what it passed on.
    liars: BTreeMap<u32, BTreeSet<u32>>,
}

impl Blame {
    /// It failed; whether that is the failure that makes it be left alone.
    pub fn failed(&mut self, suspect: Suspect) -> bool {
        let count = self.failures.entry(suspect).or_default();
        *count = count.saturating_add(1);
        *count == PATIENCE
    }

    /// It does work.
    pub fn works(&mut self, suspect: Suspect) {
        self.failures.remove(&suspect);
    }

    /// It gave other bytes than this source says it sent; whether that is new. Either of
    /// them lies.
    pub fn lied(&mut self, node: u32, source: u32) -> bool {
        self.liars.entry(node).or_default().insert(source)
    }

    /// Whether it is left alone.
    pub fn avoids(&self, suspect: Suspect) -> bool {
        self.failures.get(&suspect).is_some_and(|count| *count >= PATIENCE)
    }

    /// Whether a way of this source's data over these nodes has something that is left alone. Its
    /// ends are none of its own.
    pub fn avoids_way(&self, source: u32, hops: &[u32]) -> bool {
        let legs = hops.windows(2).map(|leg| Suspect::Leg(leg[0], leg[1]));
        let between = hops.get(1..hops.len().saturating_sub(1)).unwrap_or_default();
        let nodes = between.iter().map(|node| Suspect::Node(*node));
        let lies = between.iter().any(|node| self.lies(*node, source));
        lies || legs.chain(nodes).any(|suspect| self.avoids(suspect))
    }

    /// One source alone could accuse all the others.
    fn lies(&self, node: u32, source: u32) -> bool {
        let accused = self.liars.get(&node);
        accused.is_some_and(|sources| sources.contains(&source) || sources.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_twice_in_a_row_is_left_alone() {
        let mut blame = Blame::default();
        assert!(!blame.failed(Suspect::Node(2)) && !blame.avoids_way(0, &[0, 2, 3]));
        blame.works(Suspect::Node(2));
        assert!(!blame.failed(Suspect::Node(2)));
        assert!(blame.failed(Suspect::Node(2)) && blame.avoids_way(0, &[0, 2, 3]));
        assert!(!blame.avoids_way(2, &[2, 3]), "a way's source is not between");
        (0..2).for_each(|_| _ = blame.failed(Suspect::Leg(0, 4)));
        assert!(blame.avoids_way(0, &[0, 4, 3]) && !blame.avoids_way(5, &[5, 4, 3]));
    }

    #[test]
    fn who_lies_is_left_alone_by_that_source_and_by_all_when_two_say_so() {
        let mut blame = Blame::default();
        assert!(blame.lied(1, 0) && !blame.lied(1, 0));
        assert!(blame.avoids_way(0, &[0, 1, 3]) && !blame.avoids_way(2, &[2, 1, 3]));
        assert!(blame.lied(1, 4) && blame.avoids_way(2, &[2, 1, 3]));
    }
}
