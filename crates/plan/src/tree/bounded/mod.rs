//! Trees whose fan-out is bounded by hosts' egress, so that the planner considers link stress (ROMA §V-A, §VI-A).
//!
//! The paper's widest-path tree lets a host have any number of children, and the authors found that "nodes with
//! considerable fanout" slow them. Here children share their parent's egress. The tree is to make the slowest receiver
//! as fast as possible (in steps of 1 %), then all of them by proportional fairness. Finding the best tree is NP-hard
//! (with equal legs it is a spanning tree of bounded degree). So:
//!
//! 1. for many target rates, a tree grows that gives each receiver that rate or the most that it can have at all, the
//!    most useful node first (`grow.rs`);
//! 2. the best of these and the widest-path tree are improved by moves until none helps, the best one also from trees
//!    that are worse by one move (`improve.rs`).
//!
//! Distance from the optimum: all of 60 random graphs of five hosts got the best of all trees (`tests.rs`; with fewer
//! moves 299 of 300 did). For large graphs only bounds are known: the slowest receiver's widest path, and what several
//! parents could give ([`Overlay::several`]). Of synthetic hosts with 24 legs each (`thalweg_sim::cast`), all had their
//! access line's rate, from 30 receivers to 10,000. Depth counts as the model says; where nodes store data it costs
//! nothing, and chains may be long.

mod grow;
mod improve;
mod score;
#[cfg(test)]
mod tests;

use super::{Overlay, Tree, depth::ChainLoss, widest::WidestTree};
use grow::{Aim, GrowthRule, RULES};
use improve::TreeSearch;
use score::TreeScore;
use thalweg_units::Rate;

/// A tree and the rates that it is expected to give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTree {
    /// The tree. Receivers without any path from the source are not in it.
    pub tree: Tree,
    /// By node, as [`Overlay::rates`].
    pub rates: Vec<Rate>,
    /// By node, the rate that its path could give alone (the widest path): no tree gives more.
    pub ceilings: Vec<Rate>,
}

/// The effort that plans a tree of some hundred nodes in about a second.
pub const EFFORT: u64 = 10_000_000;

/// The number of target rates tried for each rule, in each of two rounds.
const LEVELS: usize = 12;

/// The number of trees that are improved.
const STARTS: usize = 4;

/// See [`Overlay::bounded`].
pub(super) fn bounded(overlay: &Overlay<'_>, model: &ChainLoss, effort: u64) -> PlannedTree {
    let WidestTree { tree: widest, width } = overlay.widest();
    let ceilings: Vec<f64> = width.iter().map(|rate| rate.as_bps() as f64).collect();
    let mut found = vec![(TreeScore::of(overlay, &widest, model), widest)];
    found.extend(grown(overlay, model, &ceilings, effort / 2));
    // The widest-path tree is always improved: it is wide where egress is no limit.
    found[1..].sort_by(|a, b| b.0.compare(&a.0));
    found.dedup_by(|a, b| a.1 == b.1);
    found.truncate(STARTS);
    let share = effort / 4 / found.len() as u64;
    let best =
        found.into_iter().map(|(_, tree)| TreeSearch::new(overlay, model, share).improve(tree));
    // Among equals, the first.
    let best = best.reduce(|best, next| if next.1.beats(&best.1) { next } else { best });
    let tree = best.map_or_else(|| Tree::new(overlay.nodes(), overlay.source), |best| best.0);
    let tree = TreeSearch::new(overlay, model, effort / 4).look_beyond(tree).0;
    let rates = overlay.rates(&tree, model);
    PlannedTree { tree, rates, ceilings: width }
}

/// Grows trees for many target rates, then for rates between the best one and its neighbours. Fewer for large graphs.
fn grown(
    overlay: &Overlay<'_>,
    model: &ChainLoss,
    ceilings: &[f64],
    effort: u64,
) -> Vec<(TreeScore, Tree)> {
    let runs = effort / (overlay.graph.measured() + overlay.nodes() + 1) as u64;
    let ways: &[bool] = if has_relays(overlay) { &[false, true] } else { &[false] };
    let rules: &[GrowthRule] = if runs < 24 { &RULES[..1] } else { &RULES };
    let count = (runs as usize / (rules.len() * ways.len() * 2)).clamp(3, LEVELS);
    let grow = |rate: f64| {
        let kinds = rules.iter().flat_map(|rule| ways.iter().map(|relays| (*rule, *relays)));
        let trees = kinds.map(|(rule, relays)| {
            let tree = grow::grow(overlay, Aim { rate, ceilings, rule, relays });
            (TreeScore::of(overlay, &tree, model), tree)
        });
        trees.collect::<Vec<_>>()
    };
    let mut found: Vec<(f64, TreeScore, Tree)> = Vec::new();
    let mut levels = levels(overlay, ceilings, count);
    for _ in 0..2 {
        for level in &levels {
            found.extend(grow(*level).into_iter().map(|(score, tree)| (*level, score, tree)));
        }
        let best = found.iter().max_by(|a, b| a.1.compare(&b.1)).map_or(1.0, |best| best.0);
        let near = |wider: bool| {
            let beyond = found.iter().map(|one| one.0).filter(|rate| (*rate > best) == wider);
            let beyond = beyond.filter(|rate| *rate != best);
            if wider { beyond.fold(best * 2.0, f64::min) } else { beyond.fold(1.0, f64::max) }
        };
        levels = geometric(near(false), near(true), count);
    }
    found.into_iter().map(|(_, score, tree)| (score, tree)).collect()
}

fn has_relays(overlay: &Overlay<'_>) -> bool {
    (0..overlay.nodes()).any(|node| overlay.takes_part(node) && !overlay.receives(node))
}

/// Target rates in geometric steps: from what every receiver can have if the source serves all, to the fastest.
fn levels(overlay: &Overlay<'_>, ceilings: &[f64], count: usize) -> Vec<f64> {
    let wants = || overlay.receivers().map(|node| ceilings[node]).filter(|rate| *rate > 0.0);
    let high = wants().fold(0.0, f64::max).max(1.0);
    let slowest = wants().fold(f64::INFINITY, f64::min).min(high);
    let low =
        (overlay.egress(overlay.source) / wants().count().max(1) as f64).min(slowest).max(1.0);
    let mut levels = geometric(low, high, count);
    // The most that many receivers can have is a useful target.
    let mut most: Vec<f64> = wants().collect();
    most.sort_by(f64::total_cmp);
    levels.extend((1..4).filter_map(|part| most.get(most.len() * part / 4)));
    levels
}

/// `count` rates from `high` down to `low`, each less by the same factor.
fn geometric(low: f64, high: f64, count: usize) -> Vec<f64> {
    let factor = (high / low).powf(1.0 / (count.max(2) - 1) as f64);
    (0..count as i32).map(|at| high / factor.powi(at)).collect()
}
