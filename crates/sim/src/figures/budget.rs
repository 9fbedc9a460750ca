//! Fig. 9: what rankings are worth after so many measurements.

use super::{Report, best, pairs};
use crate::{
    input::{Cast, Input},
    matrix::Matrix,
    random::{self, Stream},
    stats,
};
use thalweg_plan::{
    Graph, completion,
    ranking::{Incremental, Ranking},
    schedule::{Biased, Excluded, Known, Pair, Random, RttOf, Schedule, Thrifty},
};
use thalweg_units::Rate;

/// Candidates per client (UKAIRO §4.3).
const M: usize = 5;
/// The gain is looked at after each of so many equal parts of all measurements.
const PARTS: usize = 50;
/// Parts of what measuring everything adds to knowing nothing, at which schedules are compared.
const NEARLY: [(&str, f64); 3] = [("half", 0.5), ("three_quarters", 0.75), ("nearly_all", 0.9)];
/// The paper's mark: a 50 % increase.
const MARK: f64 = 50.0;

/// Algorithm 1's t (UKAIRO §4.3).
const T: u64 = 25;

/// A schedule, and how the measured graph becomes a ranking.
#[derive(Clone, Copy, Debug)]
pub struct Arm {
    /// As metrics name it.
    pub name: &'static str,
    /// A fresh schedule that measures all, in its own order.
    pub schedule: fn() -> Box<dyn Schedule>,
    /// The ranking of what is measured; round trips are known.
    pub ranking: fn(&Incremental, &dyn RttOf) -> Ranking,
}

/// All: the paper's two, and ours with each half of what it does.
pub const ARMS: [Arm; 4] = [
    Arm {
        name: "algorithm_1",
        schedule: || Box::new(Biased::new(T, 1.0)),
        ranking: |known, _| known.ranking(),
    },
    Arm {
        name: "random",
        schedule: || Box::new(Random::new(1.0)),
        ranking: |known, _| known.ranking(),
    },
    Arm {
        name: "thrifty",
        schedule: || Box::new(Thrifty::new(1.0)),
        ranking: |known, rtt| completion::ranking(known.graph(), Some(rtt)),
    },
    Arm {
        name: "algorithm_1_completed",
        schedule: || Box::new(Biased::new(T, 1.0)),
        ranking: |known, rtt| completion::ranking(known.graph(), Some(rtt)),
    },
];

/// What pings between the detours gave, ms.
#[derive(Debug)]
struct RoundTrips(Matrix);

impl RttOf for RoundTrips {
    fn rtt_s(&self, (from, to): Pair) -> Option<f64> {
        self.0.get(from, to).map(|ms| ms / 1000.0)
    }
}

/// No arm has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no schedule is called \"{0}\"; there are algorithm_1, random, thrifty and \
     algorithm_1_completed"
)]
pub struct UnknownArm(String);

/// The arm of this name, or all.
///
/// # Errors
/// When none has it.
pub fn named(only: Option<&str>) -> Result<Vec<Arm>, UnknownArm> {
    let Some(name) = only else { return Ok(ARMS.to_vec()) };
    let arm = ARMS.into_iter().find(|arm| arm.name == name);
    arm.map(|arm| vec![arm]).ok_or_else(|| UnknownArm(name.to_owned()))
}

/// The median gain of five candidates against the measurements made, for each schedule, over
/// `draws` sets of detours.
pub fn compute(input: &Input, seed: u64, draws: u64, arms: &[Arm]) -> Report {
    let casts: Vec<Cast> =
        (0..draws).map(|draw| input.cast(seed, draw, input.of_201(50))).collect();
    let ends = ends(input, &casts, seed);
    let one = |arm: &Arm| (arm.name, one(input, &casts, arm, ends, seed));
    let mut report = Report::merged(arms.iter().map(one).collect());
    report.add("unmeasured", "%", ends.0);
    report.add("measured", "%", ends.1);
    report
}

fn one(input: &Input, casts: &[Cast], arm: &Arm, ends: (f64, f64), seed: u64) -> Report {
    let mut sums = vec![0.0; PARTS + 1];
    for (draw, cast) in (0..).zip(casts) {
        let curve = curve(input, cast, arm, &mut random::stream(seed, "order", draw));
        sums.iter_mut().zip(curve).for_each(|(sum, gain)| *sum += gain);
    }
    let curve: Vec<f64> = sums.iter().map(|sum| sum / casts.len() as f64).collect();
    report(&curve, ends)
}

/// The gain before any measurement and after all, the same for every schedule.
fn ends(input: &Input, casts: &[Cast], seed: u64) -> (f64, f64) {
    let mut random = random::stream(seed, "unmeasured", 0);
    let mut of = |ranking: &dyn Fn(&Cast) -> Ranking, repeats: usize| {
        let each = casts.iter().flat_map(|cast| std::iter::repeat_n(cast, repeats));
        let gains = each.map(|cast| gain(input, cast, &ranking(cast), &mut random));
        stats::mean(&gains.collect::<Vec<_>>())
    };
    // Five at random differ from draw to draw: several.
    let before = of(&|cast| Ranking::oblivious(&Graph::new(cast.detours.len())), 10);
    let after = of(&|cast| Ranking::oblivious(&input.planned.among(&cast.detours).graph()), 1);
    (before, after)
}

fn report(curve: &[f64], (before, after): (f64, f64)) -> Report {
    let mut report = Report::default();
    report.add("at_40", "%", curve[PARTS * 2 / 5]);
    report.add("best", "%", curve.iter().copied().fold(0.0, f64::max));
    if let Some(at) = reached(curve, MARK) {
        report.add("paths_for_50", "%", at);
    }
    for (share, part) in NEARLY {
        if let Some(at) = reached(curve, before + part * (after - before)) {
            report.add(format!("paths_for_{share}_of_gain"), "%", at);
        }
    }
    let points = curve.iter().enumerate().map(|(at, gain)| (percent(at as f64), *gain));
    report.curve("gain", points.collect());
    report
}

fn percent(at: f64) -> f64 {
    100.0 * at / PARTS as f64
}

/// The percentage of paths measured when the gain first reaches this, between two parts by
/// a straight line.
fn reached(curve: &[f64], gain: f64) -> Option<f64> {
    let at = curve.iter().position(|&there| there >= gain)?;
    if at == 0 {
        return Some(0.0);
    }
    let (before, after) = (curve[at - 1], curve[at]);
    Some(percent((at - 1) as f64 + (gain - before) / (after - before)))
}

/// The gain after each part of the measurements; a schedule that ends early keeps its last.
fn curve(input: &Input, cast: &Cast, arm: &Arm, random: &mut Stream) -> Vec<f64> {
    let rates = input.planned.among(&cast.detours);
    let n = cast.detours.len();
    let all = rates.known().count();
    let rtt = RoundTrips(input.world.rtt.among(&cast.detours));
    let mut known = Incremental::new(Graph::new(n));
    let mut schedule = (arm.schedule)();
    let unknown = |&(i, j): &Pair| rates.get(i, j).is_none();
    let nodes: Vec<usize> = (0..n).collect();
    let excluded =
        Excluded { pairs: pairs(&nodes).filter(unknown).collect(), ..Excluded::default() };
    let mut curve = vec![gain(input, cast, &(arm.ranking)(&known, &rtt), random)];
    while curve.len() <= PARTS {
        let now =
            Known { graph: known.graph(), excluded: &excluded, age_s: None, rtt_s: Some(&rtt) };
        let wanted = schedule.next(&now, random);
        if wanted.is_empty() {
            break;
        }
        for (i, j) in wanted {
            known.set(i, j, rates.get(i, j).map(Rate::from_mbps));
            while curve.len() * all <= known.graph().measured() * PARTS && curve.len() <= PARTS {
                curve.push(gain(input, cast, &(arm.ranking)(&known, &rtt), random));
            }
        }
    }
    let last = gain(input, cast, &(arm.ranking)(&known, &rtt), random);
    curve.resize(PARTS + 1, last);
    curve
}

/// The median gain of clients that download from each other by the first five relays, %.
fn gain(input: &Input, cast: &Cast, ranking: &Ranking, random: &mut Stream) -> f64 {
    let relays = ranking.top_of_ties(M, random);
    let relays: Vec<usize> = relays.into_iter().map(|at| cast.detours[at]).collect();
    let known = pairs(&cast.others).filter(|&(i, j)| input.judged.get(i, j).is_some());
    let gains = known.map(|(i, j)| best(&input.judged, &relays, i, j).map_or(0.0, |b| b.1));
    100.0 * stats::median(&gains.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_reached_between_two_points() {
        let mut curve = vec![60.0; PARTS + 1];
        (curve[0], curve[1], curve[2]) = (20.0, 40.0, 50.0);
        assert_eq!(reached(&curve, 30.0), Some(percent(0.5)));
        assert_eq!((reached(&curve, 10.0), reached(&curve, 61.0)), (Some(0.0), None));
    }
}
