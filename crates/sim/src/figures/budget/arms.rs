//! The schedules that are compared, each with its ranking.

use super::{
    super::{RoundTrips, default_ranking},
    by_path::ByPath,
};
use thalweg_plan::{
    completion,
    ranking::{Incremental, Ranking, Score},
    schedule::{Biased, Random, Schedule, Thrifty},
};

/// A schedule, and the ranking for what it has measured.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// Its name in metrics.
    pub name: &'static str,
    /// Creates a schedule that measures everything, in its own order.
    pub schedule: fn() -> Box<dyn Schedule>,
    /// Ranks what is measured; round trips are known.
    pub(super) ranking: fn(&Incremental, &RoundTrips) -> Ranking,
    /// Whether the members' own downloads are samples as well.
    pub is_passive: bool,
}

const fn arm(
    name: &'static str,
    schedule: fn() -> Box<dyn Schedule>,
    ranking: fn(&Incremental, &RoundTrips) -> Ranking,
) -> Arm {
    Arm { name, schedule, ranking, is_passive: false }
}

fn biased() -> Box<dyn Schedule> {
    Box::new(Biased::new(Biased::T, 1.0))
}

fn thrifty() -> Box<dyn Schedule> {
    Box::new(Thrifty::new(1.0))
}

fn plain(known: &Incremental, _: &RoundTrips) -> Ranking {
    known.ranking()
}

/// Eq. 3 as it is printed, divided by |P|: the gain of an unmeasured detour counts as 0, so that relays that are
/// measured more often rank higher.
fn printed(known: &Incremental, _: &RoundTrips) -> Ranking {
    let ranking = known.ranking();
    let all = known.graph().measured() as f64;
    let over_all = |s: &Score| Score { score: s.score * s.evidence as f64 / all, ..*s };
    Ranking::from_scores(ranking.scores().iter().map(over_all).collect())
}

/// Eq. 3 with the completed ranking's bound on a pair's gain: the effect of clipping by itself.
fn clipped(known: &Incremental, _: &RoundTrips) -> Ranking {
    let graph = known.graph();
    let mut sums = vec![(0.0, 0_u64); graph.nodes()];
    for ((i, j), direct) in graph.legs() {
        for (l, detour) in graph.detours(i, j) {
            let gain = detour.as_bps() as f64 / direct.as_bps() as f64 - 1.0;
            sums[l].0 += gain.clamp(0.0, completion::MOST_GAIN);
            sums[l].1 += 1;
        }
    }
    let score = |(relay, (sum, evidence)): (usize, (f64, u64))| Score {
        relay,
        score: sum / evidence.max(1) as f64,
        evidence,
    };
    Ranking::from_scores(sums.into_iter().enumerate().map(score).collect())
}

fn completed(known: &Incremental, rtt: &RoundTrips) -> Ranking {
    completion::ranking(known.graph(), Some(rtt))
}

/// Ranks as the oracle does by default, with both ends vouching for each leg.
fn robust(known: &Incremental, _: &RoundTrips) -> Ranking {
    default_ranking(known.graph())
}

/// Ranks as the oracle does when its schedule is ours.
fn bounded(known: &Incremental, rtt: &RoundTrips) -> Ranking {
    completion::bounded(known.graph(), Some(rtt))
}

fn random() -> Box<dyn Schedule> {
    Box::new(Random::new(1.0))
}

fn by_path() -> Box<dyn Schedule> {
    Box::new(ByPath)
}

/// The paper's two schedules by both readings of Eq. 3, the random one also by both readings of its end-points, and
/// Algorithm 1 with our bound on gains; each half of what our schedule does; both with the rankings that the oracle
/// uses; and ours beside the members' own downloads.
pub const ARMS: [Arm; 11] = [
    arm("algorithm_1", biased, plain),
    arm("random", random, plain),
    arm("algorithm_1_printed", biased, printed),
    arm("random_printed", random, printed),
    arm("random_by_path_printed", by_path, printed),
    arm("algorithm_1_clipped", biased, clipped),
    arm("thrifty", thrifty, completed),
    arm("algorithm_1_completed", biased, completed),
    arm("algorithm_1_robust", biased, robust),
    arm("thrifty_bounded", thrifty, bounded),
    Arm { is_passive: true, ..arm("thrifty_passive", thrifty, completed) },
];

/// No arm has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no schedule \"{name}\"; available: {}", ARMS.map(|arm| arm.name).join(", "))]
pub struct UnknownArm {
    name: String,
}

/// The arms of these names, separated by commas, or all.
///
/// # Errors
/// [`UnknownArm`] for a name that no arm has.
pub fn named(only: Option<&str>) -> Result<Vec<Arm>, UnknownArm> {
    let Some(names) = only else { return Ok(ARMS.to_vec()) };
    let named = |name: &str| {
        let arm = ARMS.into_iter().find(|arm| arm.name == name);
        arm.ok_or_else(|| UnknownArm { name: name.to_owned() })
    };
    names.split(',').map(named).collect()
}
