//! Predictions by ROMA's formulas for a receiver's path, for comparison with the plan from measured rates.

use serde::{Deserialize, Serialize};
use thalweg_paths::estimates::Estimates;
use thalweg_plan::tree::model::{Formula, Hop};
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::{cast::MAX_WAY, mesh::Name};

/// s in Eq. (1): the payload of a full TCP segment with timestamps over Ethernet.
const SEGMENT: ByteSize = ByteSize::from_bytes(1448);

/// Predicted rates of one path, with Eq. (1) for each hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedRates {
    /// Eq. (2), bit/s: the rate of the slowest hop.
    pub eq2_bps: u64,
    /// Eq. (3), bit/s: one connection over the whole path. It underestimates (§V-B).
    pub eq3_bps: u64,
}

/// Predicts the rates of the path of first parents from the source to a receiver.
///
/// A hop's loss is the measured one; if none was measured, the loss that follows from its rate and round trip by Eq.
/// (1), as in §VI-B, so that its rate in Eq. (2) is the measured one. Returns `None` if a hop's round trip is unknown,
/// or both its loss and its rate are; if no hop has any loss, so that the rate is unbounded; and if the path is too
/// long to be reported whole.
pub fn predict(way: &[Name], to: &Name, estimates: &Estimates) -> Option<PredictedRates> {
    if way.len() >= MAX_WAY {
        return None;
    }
    let to = way.iter().skip(1).chain(std::iter::once(to));
    let hops: Option<Vec<Hop>> = way.iter().zip(to).map(|(u, v)| hop(u, v, estimates)).collect();
    let hops = hops?;
    let bounded = |rate: Rate| Some(rate.as_bps()).filter(|bps| *bps < u64::MAX);
    let eq2_bps = bounded(Formula::Full.chain(SEGMENT, &hops))?;
    let eq3_bps = bounded(Formula::Full.aggregate(SEGMENT, &hops))?;
    Some(PredictedRates { eq2_bps, eq3_bps })
}

fn hop(from: &Name, to: &Name, estimates: &Estimates) -> Option<Hop> {
    let rtt = estimates.rtt(from, to)?;
    let leg = estimates.leg(from, to);
    match leg.loss {
        Some(loss) => Some(Hop { rtt, loss }),
        None => Hop::inferred(SEGMENT, rtt, leg.rate?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(legs: &str, way: &[&str]) -> Option<PredictedRates> {
        let text = format!("from,to,rate,rtt,loss\n{legs}");
        let names: Vec<Name> = way.iter().map(|name| name.parse().unwrap()).collect();
        let (to, way) = names.split_last().unwrap();
        predict(way, to, &Estimates::parse(&text).unwrap())
    }

    /// Fig. 6: 20 ms and 0.05 %, 20 ms and 0.1 %. By hand, s = 1448 B: √(2p/3) + 12·√(3p/8)·p·(1 + 32p²) is 0.018257 +
    /// 0.000082 and 0.025820 + 0.000232, so 31.58 and 22.23 Mbit/s; with 40 ms and p = 0.0014995 it is 0.031618 +
    /// 0.000427, so 9.04.
    #[test]
    fn figure_6_by_both_equations() {
        let legs = "a,b,90 Mbit/s,20 ms,0.05 %\nb,c,90 Mbit/s,20 ms,0.1 %\n";
        let mbps = |bps: u64| (bps as f64 / 1e4).round() / 100.0;
        let found = of(legs, &["a", "b", "c"]).unwrap();
        assert_eq!((mbps(found.eq2_bps), mbps(found.eq3_bps)), (22.23, 9.04));
        let first = of(legs, &["a", "b"]).unwrap();
        assert_eq!((mbps(first.eq2_bps), first.eq2_bps), (31.58, first.eq3_bps), "one hop");
    }

    /// §VI-B: losses were not measured, and follow from rates and round trips.
    #[test]
    fn without_losses_the_slowest_hop_is_the_slowest_rate() {
        let legs = "a,b,53.9 Mbit/s,20 ms,\nc,b,1 Mbit/s,25 ms,\nb,c,37.2 Mbit/s,,\n";
        let found = of(legs, &["a", "b", "c"]).unwrap();
        assert!(found.eq2_bps.abs_diff(37_200_000) < 1_000, "{found:?}");
        assert!(found.eq3_bps < 20_000_000, "{found:?}");
    }

    #[test]
    fn without_enough_measurements_nothing_is_predicted() {
        for legs in [
            "a,b,9 Mbit/s,20 ms,0.1 %\nb,c,9 Mbit/s,,0.1 %\n",
            "a,b,9 Mbit/s,20 ms,0.1 %\nb,c,,20 ms,\n",
            "a,b,9 Mbit/s,20 ms,0.1 %\n",
            "a,b,9 Mbit/s,20 ms,0\nb,c,9 Mbit/s,20 ms,0\n",
            "a,b,9 Mbit/s,20 ms,0.1 %\nb,c,0 bit/s,20 ms,\n",
        ] {
            assert_eq!(of(legs, &["a", "b", "c"]), None, "{legs}");
        }
        let long = vec!["a"; MAX_WAY + 1];
        assert_eq!(of("a,a,9 Mbit/s,20 ms,\n", &long), None, "it may be cut");
    }
}
