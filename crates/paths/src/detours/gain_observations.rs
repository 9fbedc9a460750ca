//! Derives the gains of relays from a download: UKAIRO's `d_l(i,j)` (Eq. 1) as observed in sampling.
//!
//! It compares rates of the same time: the relay's and the direct path's in sampling, where all paths compete alike. A
//! rate of the completion phase is not comparable: a relay that then has the access link to itself is faster than the
//! direct path was among five others, without a gain. Two observations lower the gain further: the relay was slower
//! when it carried the rest, or the direct path was faster when it last did so alone.
//!
//! Rates observed in sampling are lower bounds, on both sides; their ratio is taken for the gain, as in the paper. So a
//! relay that had not left slow start when the winner was clear counts as a loser of this download; its score halves,
//! and it may be drawn again ([`thalweg_plan::adaptive::EXPLORE`]). If nothing was sampled (a small file, an only
//! path), or the direct path delivered nothing to compare with, nothing is learned.

use crate::history::{Bound, PathObservation};
use std::collections::{BTreeMap, BTreeSet};
use thalweg_base::job::Event;
use thalweg_units::Rate;

const DIRECT: &str = "direct";

/// Collects the observations of one download.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GainObservations {
    sampled: BTreeMap<String, Rate>,
    failed: BTreeSet<String>,
}

impl GainObservations {
    /// Records what an event says about the rates of paths and their failures.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::PathSampled { path, rate_bps } => {
                let rate = Rate::from_bps(*rate_bps);
                self.sampled.entry(path.clone()).or_insert(rate);
            }
            Event::PathFailed { path, .. } | Event::Corrupt { path, .. } => {
                self.failed.insert(path.clone());
            }
            // Observations from another version of the object are valid for the paths too.
            _ => {}
        }
    }

    /// Each relay's gain over the direct path, at least 0; 0 for a relay that failed.
    ///
    /// `before` is the rate of the direct path alone, known from earlier downloads.
    pub fn gains(&self, observed: &[PathObservation], before: Option<Rate>) -> Vec<(String, f64)> {
        let Some(direct) = self.sampled.get(DIRECT).filter(|rate| **rate > Rate::ZERO) else {
            return Vec::new();
        };
        let exact = |path: &str| exact(observed, path);
        let direct = [before, exact(DIRECT)].into_iter().flatten().fold(*direct, Rate::max);
        let ratio = |path: &String, rate: Rate| {
            let rate = exact(path).map_or(rate, |alone| alone.min(rate));
            (path.clone(), (rate.as_bps() as f64 / direct.as_bps() as f64 - 1.0).max(0.0))
        };
        let failed = self.failed.iter().map(|path| (path.clone(), 0.0));
        let lasted = self.sampled.iter().filter(|(path, _)| !self.failed.contains(*path));
        let seen = failed.chain(lasted.map(|(path, rate)| ratio(path, *rate)));
        seen.filter(|(path, _)| is_relay(path)).collect()
    }
}

/// Whether it is a relay of the list: not the direct path, and bound to no interface or mirror.
fn is_relay(path: &str) -> bool {
    path != DIRECT && !path.contains(['%', '@', '+', ':'])
}

fn exact(observed: &[PathObservation], path: &str) -> Option<Rate> {
    let own = observed.iter().find(|o| o.path == path && o.bound == Bound::Exact);
    own.map(|o| o.rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn observed(exact: &[(&str, f64)]) -> Vec<PathObservation> {
        let observed = |(path, mbps): &(&str, f64)| PathObservation {
            path: (*path).to_owned(),
            rate: Rate::from_mbps(*mbps),
            setup: Duration::from_millis(10),
            bound: Bound::Exact,
        };
        exact.iter().map(observed).collect()
    }

    fn lesson(sampled: &[(&str, u64)], failed: &[&str]) -> GainObservations {
        let mut lesson = GainObservations::default();
        for (path, mbps) in sampled {
            let rate_bps = mbps * 1_000_000;
            lesson.event(&Event::PathSampled { path: (*path).into(), rate_bps });
        }
        for path in failed {
            lesson.event(&Event::PathFailed { path: (*path).into(), why: "gone".into() });
        }
        lesson
    }

    fn gains(
        lesson: &GainObservations,
        exact: &[(&str, f64)],
        before: Option<f64>,
    ) -> Vec<(String, f64)> {
        lesson.gains(&observed(exact), before.map(Rate::from_mbps))
    }

    fn named(gains: &[(&str, f64)]) -> Vec<(String, f64)> {
        gains.iter().map(|(relay, gain)| ((*relay).to_owned(), *gain)).collect()
    }

    #[test]
    fn gains_are_ratios_of_sampled_rates() {
        let seen = lesson(&[("direct", 10), ("fra", 15), ("nyc", 5)], &[]);
        assert_eq!(gains(&seen, &[], None), named(&[("fra", 0.5), ("nyc", 0.0)]));
        let freed = gains(&seen, &[("fra", 80.0)], None);
        assert_eq!(freed[0], ("fra".to_owned(), 0.5), "freed of its rivals it is no better");
        let faded = gains(&seen, &[("fra", 12.5)], None);
        assert_eq!(faded[0], ("fra".to_owned(), 0.25));
    }

    #[test]
    fn a_higher_rate_of_the_direct_path_alone_counts() {
        let seen = lesson(&[("direct", 10), ("fra", 15)], &[]);
        assert_eq!(gains(&seen, &[], Some(12.0)), named(&[("fra", 0.25)]));
        assert_eq!(gains(&seen, &[("direct", 30.0)], Some(12.0)), named(&[("fra", 0.0)]));
        assert_eq!(gains(&seen, &[], Some(5.0)), named(&[("fra", 0.5)]));
    }

    #[test]
    fn failures_have_no_gain_and_without_a_direct_rate_nothing_is_learned() {
        let seen = lesson(&[("direct", 10), ("fra", 50)], &["fra", "nyc"]);
        assert_eq!(gains(&seen, &[], None), named(&[("fra", 0.0), ("nyc", 0.0)]));
        assert_eq!(gains(&lesson(&[("fra", 50)], &["nyc"]), &[], None), []);
        assert_eq!(gains(&lesson(&[("direct", 0), ("fra", 50)], &[]), &[], None), []);
    }

    #[test]
    fn only_relays_of_the_list_are_reported() {
        let all = [("direct", 10), ("direct%eth1", 20), ("fra%eth1", 20), ("fra@m.test", 20)];
        let more = [("fra+nyc", 20), ("192.0.2.1:1080", 20), ("fra", 20)];
        let seen = lesson(&[&all[..], &more[..]].concat(), &[]);
        assert_eq!(gains(&seen, &[], None), named(&[("fra", 1.0)]));
    }
}
