//! Fig. 9: the quality of rankings after a number of measurements.

mod arms;
mod by_path;
mod run;
mod workload;

pub use arms::{ARMS, Arm, UnknownArm, named};

use super::{Report, best_relay, pairs};
use crate::{
    input::{Input, Roles},
    random::{self, Stream},
    stats,
};
use run::Curve;
use thalweg_plan::{Graph, ranking::Ranking};

/// Candidates per client (UKAIRO §4.3).
const M: usize = 5;
/// The number of equal parts of all measurements after each of which the gain is computed.
const PARTS: usize = 50;
/// The parts of the gain from no measurement to all at which schedules are compared.
const NEARLY: [(&str, f64); 3] = [("half", 0.5), ("three_quarters", 0.75), ("nearly_all", 0.9)];
/// The paper's mark: a 50 % increase.
const MARK: f64 = 50.0;

/// The median gain of five candidates against the number of measurements, for each schedule, over `draws` sets of
/// detours.
pub fn compute(input: &Input, seed: u64, draws: u64, arms: &[Arm]) -> Report {
    let role_sets: Vec<Roles> =
        (0..draws).map(|draw| input.draw_roles(seed, draw, input.scale_count(50))).collect();
    let ends = ends(input, &role_sets, seed);
    let one = |arm: &Arm| (arm.name, compute_arm(input, &role_sets, arm, ends, seed));
    let mut report = Report::merged(arms.iter().map(one).collect());
    report.add("unmeasured", "%", ends.0);
    report.add("measured", "%", ends.1);
    report
}

fn compute_arm(
    input: &Input,
    role_sets: &[Roles],
    arm: &Arm,
    ends: (f64, f64),
    seed: u64,
) -> Report {
    let curve = |(draw, roles): (u64, &Roles)| {
        let random = &mut random::stream(seed, "order", draw);
        run::curve(input, roles, arm, seed.wrapping_add(draw << 32), random)
    };
    report(&Curve::mean(&(0..).zip(role_sets).map(curve).collect::<Vec<_>>()), ends)
}

/// The gain before any measurement and after all, which is the same for every schedule.
fn ends(input: &Input, role_sets: &[Roles], seed: u64) -> (f64, f64) {
    let mut random = random::stream(seed, "unmeasured", 0);
    let mut of = |ranking: &dyn Fn(&Roles) -> Ranking, repeats: usize| {
        let each = role_sets.iter().flat_map(|roles| std::iter::repeat_n(roles, repeats));
        let gains = each.map(|roles| gain(input, roles, &ranking(roles), &mut random));
        stats::mean(&gains.collect::<Vec<_>>())
    };
    // Five random relays differ from draw to draw, so there are several draws.
    let before = of(&|roles| Ranking::oblivious(&Graph::new(roles.detours.len())), 10);
    let after =
        of(&|roles| Ranking::oblivious(&input.planned.restricted_to(&roles.detours).graph()), 1);
    (before, after)
}

fn report(curve: &Curve, (before, after): (f64, f64)) -> Report {
    let mut report = Report::default();
    let gain = &curve.gain;
    // The curve of a few sets is noisy: it touches a level before it stays there.
    let rising = stats::rising(gain);
    report.add("at_40", "%", gain[PARTS * 2 / 5]);
    report.add("best", "%", gain.iter().copied().fold(0.0, f64::max));
    // A network that never gets there counts as one that needs everything: leaving it out would lower the median.
    report.add("paths_for_50", "%", reached(&rising, MARK).map_or(100.0, percent));
    for (share, part) in NEARLY {
        if let Some(at) = reached(&rising, before + part * (after - before)) {
            report.add(format!("paths_for_{share}_of_gain"), "%", percent(at));
            report.add(format!("tests_for_{share}_of_gain"), "%", between(&curve.tests, at));
            report.add(format!("traffic_for_{share}_of_gain"), "GB", between(&curve.gigabytes, at));
        }
    }
    let points = gain.iter().enumerate().map(|(at, gain)| (percent(at as f64), *gain));
    report.curve("gain", points.collect());
    report
}

/// The value at a position between two points, interpolated.
fn between(values: &[f64], at: f64) -> f64 {
    let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

fn percent(at: f64) -> f64 {
    100.0 * at / PARTS as f64
}

/// The number of parts after which a rising curve reaches this gain, interpolated; `None` if it does not.
fn reached(rising: &[f64], gain: f64) -> Option<f64> {
    let at = rising.iter().position(|&there| there >= gain)?;
    if at == 0 {
        return Some(0.0);
    }
    let (before, after) = (rising[at - 1], rising[at]);
    Some((at - 1) as f64 + (gain - before) / (after - before))
}

/// The median gain, %, of clients that download from each other by the first five relays.
fn gain(input: &Input, roles: &Roles, ranking: &Ranking, random: &mut Stream) -> f64 {
    let relays = ranking.top_of_ties(M, random);
    let relays: Vec<usize> = relays.into_iter().map(|at| roles.detours[at]).collect();
    let known = pairs(&roles.others).filter(|&(i, j)| input.judged.get(i, j).is_some());
    let gains = known.map(|(i, j)| best_relay(&input.judged, &relays, i, j).map_or(0.0, |b| b.1));
    100.0 * stats::median(&gains.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_reached_between_two_points() {
        let mut curve = vec![60.0; PARTS + 1];
        (curve[0], curve[1], curve[2]) = (20.0, 40.0, 50.0);
        assert_eq!(reached(&curve, 30.0), Some(0.5));
        assert_eq!((reached(&curve, 10.0), reached(&curve, 61.0)), (Some(0.0), None));
    }
}
