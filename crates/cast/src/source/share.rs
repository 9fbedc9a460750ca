//! Chooses each receiver's parents: those of the planned tree, or several at once where their rates add up (ROMA
//! §IV-D).

use thalweg_plan::tree::{Overlay, PlannedTree, Share};
use thalweg_units::Rate;
use thalweg_wire::cast::MAX_CANDIDATES;

/// The maximum number of legs for which the linear program is solved; this many take less than a second.
const MAX_LEGS: usize = 120;

/// The program is used only if at least this many legs per receiver fit into the limit.
const MIN_LEGS_PER_RECEIVER: usize = 2;

/// The minimum number of parents at a time where several add up. The program's own solution is a corner with the fewest
/// legs, and there TCP's sharing of an access decides which receiver waits. In `cast-peers`, the receiver that waits
/// longest had 0.84 of the possible rate with four parents, and 0.91 with six.
const MIN_PARENTS: usize = 6;

/// The maximum number of parents with a share in the program's solution. Further shares are small, and each leg has its
/// cost.
const MAX_PARENTS: usize = 8;

/// Several parents are used if the slowest receiver, or all together, get this factor more than from a tree. The
/// program's result is an upper bound, which pulling nearly reaches.
const MIN_GAIN: f64 = 1.05;

/// The planned parents of one receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedParents {
    /// The first `at_once` are used at a time, the others as replacements.
    pub parents: Vec<Share>,
    /// The number of parents to use at a time.
    pub at_once: usize,
    /// The rate from all of them together.
    pub rate: Rate,
}

/// The shares of all nodes. `at_once` is the requested number of parents at a time; with one the result is always a
/// tree.
pub fn choose_parents(
    overlay: &Overlay<'_>,
    planned: &PlannedTree,
    at_once: usize,
) -> Vec<PlannedParents> {
    let tree = overlay.candidates(planned, MAX_CANDIDATES);
    let of_tree =
        |(parents, rate): (Vec<Share>, &Rate)| PlannedParents { parents, at_once, rate: *rate };
    let tree: Vec<PlannedParents> = tree.into_iter().zip(&planned.rates).map(of_tree).collect();
    let keep = MAX_LEGS / overlay.nodes().max(1);
    if at_once < 2 || keep < MIN_LEGS_PER_RECEIVER {
        return tree;
    }
    let Ok(best) = overlay.several(keep, Some(&planned.tree)) else { return tree };
    let worst = |rates: &[Rate]| overlay.receivers().map(|node| rates[node].as_bps()).min();
    let all = |rates: &[Rate]| overlay.receivers().map(|node| rates[node].as_bps()).sum::<u64>();
    let is_more = |now: u64, before: u64| now as f64 > MIN_GAIN * before as f64;
    let slowest = (worst(&best.rates).unwrap_or(0), worst(&planned.rates).unwrap_or(0));
    if !is_more(slowest.0, slowest.1) && !is_more(all(&best.rates), all(&planned.rates)) {
        return tree;
    }
    let several = |(node, tree): (usize, PlannedParents)| {
        let mut parents: Vec<Share> =
            best.parents[node].iter().filter(|share| share.rate > Rate::ZERO).copied().collect();
        parents.truncate(MAX_PARENTS);
        let at_once = at_once.max(parents.len()).max(MIN_PARENTS);
        let other = |share: &Share| parents.iter().all(|known| known.parent != share.parent);
        let others: Vec<Share> = tree.parents.into_iter().filter(other).collect();
        parents.extend(others);
        parents.truncate(MAX_CANDIDATES);
        let at_once = at_once.min(parents.len());
        PlannedParents { parents, at_once, rate: best.rates[node] }
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

    /// The source reaches two receivers at 20 and 8 Mbit/s; between them the rate is 12 Mbit/s.
    fn plan(at_once: usize) -> Vec<PlannedParents> {
        let mbps = |x: f64| Some(Rate::from_mbps(x));
        let mut graph = Graph::new(3);
        for (from, to, rate) in [(0, 1, 20.0), (0, 2, 8.0), (1, 2, 12.0), (2, 1, 12.0)] {
            graph.set(from, to, mbps(rate));
        }
        let hosts = [Host::RECEIVER; 3];
        let overlay = Overlay { graph: &graph, source: 0, hosts: &hosts };
        choose_parents(&overlay, &overlay.bounded(&ChainLoss::NONE, EFFORT), at_once)
    }

    #[test]
    fn parents_that_add_up_are_taken_together() {
        let all = plan(2);
        // 8 Mbit/s from the source and 12 from the other receiver, which has 20.
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
