//! Parents of the planned tree, or several at once where they add up (ROMA §IV-D).

use thalweg_plan::tree::{Overlay, Planned, Share};
use thalweg_units::Rate;
use thalweg_wire::cast::MAX_CANDIDATES;

/// The linear program is solved up to so many legs: within a second.
const LEGS: usize = 120;

/// The fewest legs to a receiver that are worth it.
const FEWEST: usize = 2;

/// Where several add up, so many at a time at least: the program's own choice is a corner, with the fewest
/// legs that do in theory, and there what TCP makes of a shared access decides who waits. In `cast-peers` the
/// receiver that waits longest had 0.84 of what could be with four, 0.91 with six.
const AT_LEAST: usize = 6;

/// The most parents at a time that a plan gives a receiver: beyond, shares are small, and each leg has
/// its cost.
const AT_ONCE: usize = 8;

/// Several parents are taken if the slowest receiver, or all together, get so much more than from a
/// tree: what the program finds is a bound, and pulling comes near it.
const BETTER: f64 = 1.05;

/// What a receiver is to get from whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Parents, those of now first: `at_once`, and then those to turn to.
    pub parents: Vec<Share>,
    /// How many of them at a time.
    pub at_once: usize,
    /// What it gets in all.
    pub rate: Rate,
}

/// By node. `at_once`: parents at a time as they were asked for; one is a tree, always.
pub fn shares(overlay: &Overlay<'_>, planned: &Planned, at_once: usize) -> Vec<Shares> {
    let tree = overlay.candidates(planned, MAX_CANDIDATES);
    let of_tree = |(parents, rate): (Vec<Share>, &Rate)| Shares { parents, at_once, rate: *rate };
    let tree: Vec<Shares> = tree.into_iter().zip(&planned.rates).map(of_tree).collect();
    let keep = LEGS / overlay.nodes().max(1);
    if at_once < 2 || keep < FEWEST {
        return tree;
    }
    let Ok(best) = overlay.several(keep, Some(&planned.tree)) else { return tree };
    let worst = |rates: &[Rate]| overlay.receivers().map(|node| rates[node].as_bps()).min();
    let all = |rates: &[Rate]| overlay.receivers().map(|node| rates[node].as_bps()).sum::<u64>();
    let is_more = |now: u64, before: u64| now as f64 > BETTER * before as f64;
    let slowest = (worst(&best.rates).unwrap_or(0), worst(&planned.rates).unwrap_or(0));
    if !is_more(slowest.0, slowest.1) && !is_more(all(&best.rates), all(&planned.rates)) {
        return tree;
    }
    let several = |(node, tree): (usize, Shares)| {
        let mut parents: Vec<Share> =
            best.parents[node].iter().filter(|share| share.rate > Rate::ZERO).copied().collect();
        parents.truncate(AT_ONCE);
        let at_once = at_once.max(parents.len()).max(AT_LEAST);
        let other = |share: &Share| parents.iter().all(|known| known.parent != share.parent);
        let others: Vec<Share> = tree.parents.into_iter().filter(other).collect();
        parents.extend(others);
        parents.truncate(MAX_CANDIDATES);
        let at_once = at_once.min(parents.len());
        Shares { parents, at_once, rate: best.rates[node] }
    };
    tree.into_iter().enumerate().map(several).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_plan::{
        Graph,
        tree::{EFFORT, Host, depth::ChainLoss},
    };

    /// The source has 20 and 8 Mbit/s to two receivers, which have 12 to each other.
    fn plan(at_once: usize) -> Vec<Shares> {
        let mbps = |x: f64| Some(Rate::from_mbps(x));
        let mut graph = Graph::new(3);
        for (from, to, rate) in [(0, 1, 20.0), (0, 2, 8.0), (1, 2, 12.0), (2, 1, 12.0)] {
            graph.set(from, to, mbps(rate));
        }
        let hosts = [Host::RECEIVER; 3];
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        shares(&overlay, &overlay.bounded(&ChainLoss::NONE, EFFORT), at_once)
    }

    #[test]
    fn parents_that_add_up_are_taken_together() {
        let all = plan(2);
        // 8 from the source and 12 from the other one; it has 20.
        assert!(all[2].rate >= Rate::from_mbps(19.9), "{all:?}");
        assert_eq!((all[2].at_once, all[2].parents.len()), (2, 2));
        assert_eq!(all[2].parents[0].parent, 1);
        let sum: u64 = all[2].parents.iter().map(|share| share.rate.as_bps()).sum();
        assert!(sum >= 19_900_000, "{all:?}");
    }

    #[test]
    fn one_parent_is_a_tree() {
        let all = plan(1);
        assert_eq!(all[2].rate, Rate::from_mbps(12.0));
        assert_eq!((all[2].at_once, all[2].parents[0].parent), (1, 1));
    }
}
