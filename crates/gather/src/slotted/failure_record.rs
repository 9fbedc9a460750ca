//! Tracks failed participants and legs, and those to avoid.

use std::collections::{BTreeMap, BTreeSet};

/// The number of consecutive failures after which a participant or leg is avoided; a single one may be a restart.
const PATIENCE: u32 = 2;

/// A participant or leg that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Suspect {
    /// A participant, as seen from this host.
    Node(u32),
    /// The leg from one participant to another, or either of them.
    Leg(u32, u32),
}

/// Failures of participants and legs.
#[derive(Clone, Debug, Default)]
pub struct FailureRecord {
    failures: BTreeMap<Suspect, u32>,
    /// By participant: the sources whose hashes contradict the data that it forwarded.
    liars: BTreeMap<u32, BTreeSet<u32>>,
}

impl FailureRecord {
    /// Counts a failure. Returns whether the suspect is avoided from now on.
    pub fn record_failure(&mut self, suspect: Suspect) -> bool {
        let count = self.failures.entry(suspect).or_default();
        *count = count.saturating_add(1);
        *count == PATIENCE
    }

    /// Clears the failures of a suspect that works.
    pub fn clear(&mut self, suspect: Suspect) {
        self.failures.remove(&suspect);
    }

    /// Records that a node forwarded other bytes than the source says it sent. Returns whether that is new. Either of
    /// the two lies.
    pub fn record_lie(&mut self, node: u32, source: u32) -> bool {
        self.liars.entry(node).or_default().insert(source)
    }

    /// Whether a suspect is avoided.
    pub fn avoids(&self, suspect: Suspect) -> bool {
        self.failures.get(&suspect).is_some_and(|count| *count >= PATIENCE)
    }

    /// Whether a path of this source's data over these nodes contains anything to avoid. Its two ends do not count as
    /// nodes.
    pub fn avoids_way(&self, source: u32, hops: &[u32]) -> bool {
        let legs = hops.windows(2).map(|leg| Suspect::Leg(leg[0], leg[1]));
        let between = hops.get(1..hops.len().saturating_sub(1)).unwrap_or_default();
        let nodes = between.iter().map(|node| Suspect::Node(*node));
        let lies = between.iter().any(|node| self.lies(*node, source));
        lies || legs.chain(nodes).any(|suspect| self.avoids(suspect))
    }

    /// A node counts as a liar if this source or at least two others accuse it. One source alone could otherwise
    /// discredit all nodes.
    fn lies(&self, node: u32, source: u32) -> bool {
        let accused = self.liars.get(&node);
        accused.is_some_and(|sources| sources.contains(&source) || sources.len() > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_or_leg_that_fails_twice_in_a_row_is_avoided() {
        let mut record = FailureRecord::default();
        assert!(!record.record_failure(Suspect::Node(2)) && !record.avoids_way(0, &[0, 2, 3]));
        record.clear(Suspect::Node(2));
        assert!(!record.record_failure(Suspect::Node(2)));
        assert!(record.record_failure(Suspect::Node(2)) && record.avoids_way(0, &[0, 2, 3]));
        assert!(!record.avoids_way(2, &[2, 3]), "a way's source is not between");
        (0..2).for_each(|_| _ = record.record_failure(Suspect::Leg(0, 4)));
        assert!(record.avoids_way(0, &[0, 4, 3]) && !record.avoids_way(5, &[5, 4, 3]));
    }

    #[test]
    fn a_liar_is_avoided_for_its_accuser_and_for_all_after_two_accusers() {
        let mut record = FailureRecord::default();
        assert!(record.record_lie(1, 0) && !record.record_lie(1, 0));
        assert!(record.avoids_way(0, &[0, 1, 3]) && !record.avoids_way(2, &[2, 1, 3]));
        assert!(record.record_lie(1, 4) && record.avoids_way(2, &[2, 1, 3]));
    }
}
