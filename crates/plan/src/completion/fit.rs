//! Fits the completion's model by coordinate descent, factor by factor.

use super::LegRtts;
use crate::Graph;

/// The maximum number of passes over all legs.
const PASSES: usize = 48;
/// The ridge's weight is estimated anew after this many passes.
const EACH: usize = 4;

/// With more legs than this there are fewer passes: in such a large mesh each node has many legs, and factors settle
/// soon.
const MANY: usize = 200_000;
const PASSES_OF_MANY: usize = 12;

/// The fit ends early when no factor and no weight moves by more than this.
const CLOSE: f64 = 1e-3;

/// Rates further than this factor from the median count as that far.
const FAR: f64 = 100.0;

/// Bounds on the ridge's weight: the number of legs of mean 0 that each factor starts with.
const LEAST_RIDGE: f64 = 0.05;
const MOST_RIDGE: f64 = 10.0;

/// The weight of the slope's prior at 0, in squares of ln RTT.
const SLOPE_RIDGE: f64 = 2.0;

/// The fitted model.
#[derive(Clone, Debug, Default)]
pub(super) struct FactorModel {
    pub(super) mean: f64,
    pub(super) out: Vec<f64>,
    pub(super) into: Vec<f64>,
    pub(super) slope: f64,
    pub(super) middle: f64,
}

/// One measured leg.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredLeg {
    pub(super) i: usize,
    pub(super) j: usize,
    /// ln rate, less its mean.
    pub(super) y: f64,
    /// ln RTT, less its mean; 0 if unknown.
    pub(super) x: f64,
    /// The part of x that the ends do not explain.
    own_x: f64,
}

/// ln RTT; `None` if the time is not valid.
pub(super) fn ln_rtt(rtt_s: f64) -> Option<f64> {
    // Below 0.1 ms, other things than distance decide.
    (rtt_s.is_finite() && rtt_s > 0.0).then(|| rtt_s.max(1e-4).ln())
}

pub(super) fn fit(graph: &Graph, rtt_s: Option<&dyn LegRtts>) -> FactorModel {
    within(graph, rtt_s, f64::INFINITY).0
}

/// Returns the fit, its legs, and the ridge's weight. A leg that is further than `odd` from the model counts as that
/// far (Huber 1964).
pub(super) fn within(
    graph: &Graph,
    rtt_s: Option<&dyn LegRtts>,
    odd: f64,
) -> (FactorModel, Vec<MeasuredLeg>, f64) {
    let n = graph.nodes();
    let (mut legs, mean, middle) = legs(graph, rtt_s);
    let mut fit = FactorModel { mean, middle, slope: 0.0, out: vec![0.0; n], into: vec![0.0; n] };
    let mut ridge = 1.0;
    if legs.is_empty() {
        return (fit, legs, ridge);
    }
    own_x(&mut legs, n);
    let passes = if legs.len() > MANY { PASSES_OF_MANY } else { PASSES };
    for pass in 1..=passes {
        let (slope, into, old) = (fit.slope, &fit.into, &fit.out);
        let says = |value: f64, of: f64| value.clamp(of - odd, of + odd);
        let out = factors(n, ridge, &legs, |leg| {
            (leg.i, says(leg.y - into[leg.j] - slope * leg.x, old[leg.i]))
        });
        fit.into = factors(n, ridge, &legs, |leg| {
            (leg.j, says(leg.y - out[leg.i] - slope * leg.x, into[leg.j]))
        });
        let moves = out.iter().zip(&fit.out).map(|(new, old)| (new - old).abs());
        let most = moves.fold(0.0, f64::max);
        fit.out = out;
        let steeper = steeper(&fit, &legs, odd);
        fit.slope = (fit.slope + steeper).clamp(-2.0, 0.0);
        if pass % EACH == 0 {
            let last = std::mem::replace(&mut ridge, weight(&fit, &legs, odd));
            if most.max((ridge - last).abs()) < CLOSE {
                break;
            }
        }
    }
    (fit, legs, ridge)
}

/// The measured legs, the mean of ln rate, and the mean of ln RTT.
fn legs(graph: &Graph, rtt_s: Option<&dyn LegRtts>) -> (Vec<MeasuredLeg>, f64, f64) {
    let ln = |((i, j), rate): ((usize, usize), thalweg_units::Rate)| {
        let far = rtt_s.and_then(|rtt| rtt.rtt_s((i, j))).and_then(ln_rtt);
        ((i, j), (rate.as_bps().max(1) as f64).ln(), far)
    };
    let all: Vec<_> = graph.legs().map(ln).collect();
    let mut rates: Vec<f64> = all.iter().map(|leg| leg.1).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).copied().unwrap_or(0.0);
    let near = |y: f64| y.clamp(median - FAR.ln(), median + FAR.ln());
    let mean = average(rates.iter().map(|y| near(*y)));
    let middle = average(all.iter().filter_map(|leg| leg.2));
    let leg = |((i, j), y, far): ((usize, usize), f64, Option<f64>)| {
        let x = far.map_or(0.0, |far| far - middle);
        MeasuredLeg { i, j, y: near(y) - mean, x, own_x: x }
    };
    (all.into_iter().map(leg).collect(), mean, middle)
}

/// The mean; 0 without values.
fn average(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, n), value| (sum + value, n + 1));
    sum / count.max(1) as f64
}

/// Takes the ends' means out of x. Otherwise the slope would be found in many small steps, because remote nodes are
/// slow as well.
fn own_x(legs: &mut [MeasuredLeg], n: usize) {
    let out = factors(n, 1.0, legs, |leg| (leg.i, leg.x));
    let into = factors(n, 1.0, legs, |leg| (leg.j, leg.x));
    legs.iter_mut().for_each(|leg| leg.own_x = leg.x - out[leg.i] - into[leg.j]);
}

/// The mean of the values that each node's legs give, shrunk towards 0.
fn factors(
    n: usize,
    ridge: f64,
    legs: &[MeasuredLeg],
    says: impl Fn(&MeasuredLeg) -> (usize, f64),
) -> Vec<f64> {
    let mut sums = vec![(0.0, ridge); n];
    for leg in legs {
        let (node, value) = says(leg);
        sums[node].0 += value;
        sums[node].1 += 1.0;
    }
    sums.into_iter().map(|(sum, count)| sum / count).collect()
}

fn residual(fit: &FactorModel, leg: &MeasuredLeg) -> f64 {
    leg.y - fit.out[leg.i] - fit.into[leg.j] - fit.slope * leg.x
}

/// The amount to add to the slope.
fn steeper(fit: &FactorModel, legs: &[MeasuredLeg], odd: f64) -> f64 {
    let (mut across, mut square) = (0.0, SLOPE_RIDGE);
    for leg in legs {
        across += leg.own_x * residual(fit, leg).clamp(-odd, odd);
        square += leg.own_x * leg.own_x;
    }
    across / square
}

/// The ridge's weight: the variance of the residuals over that of the factors.
fn weight(fit: &FactorModel, legs: &[MeasuredLeg], odd: f64) -> f64 {
    let (n, count) = (fit.out.len() as f64, legs.len() as f64);
    let squares: f64 = legs.iter().map(|leg| residual(fit, leg).clamp(-odd, odd).powi(2)).sum();
    // Factors use up degrees of freedom; with few legs, at least 30 % are left.
    let left = (squares / (count - n).max(0.3 * count).max(1.0)).max(1e-4);
    let of = |factors: &[f64]| factors.iter().map(|f| f * f).sum::<f64>();
    let seen = ((of(&fit.out) + of(&fit.into)) / (2.0 * n)).max(1e-3);
    // The variance that shrinking took away.
    let hidden = 1.0 / (1.0 / seen + count / n / left);
    (left / (seen + hidden)).clamp(LEAST_RIDGE, MOST_RIDGE)
}
