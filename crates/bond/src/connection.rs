//! Chooses the interface of a whole connection (DBAS §II-D, 1 to 5).

use crate::Nature;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, time::Duration};
use thalweg_units::Rate;

/// A connection-oriented scheduler of the paper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConnectionMethod {
    /// Always the first candidate, as operating systems do.
    OnlyOne,
    RoundRobin,
    /// In rotation, in proportion to the rates.
    WeightedRoundRobin,
    /// The interface with which all open connections and the new one finish first.
    #[default]
    MaximumThroughput,
}

/// An interface that a connection may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its kernel index.
    pub interface: u32,
    /// Its available bandwidth in the direction that counts; zero: unknown.
    pub rate: Rate,
    /// Bytes that its open connections are still expected to move.
    pub load: u64,
    /// Its round trip; zero: unknown.
    pub rtt: Duration,
}

/// The choice for a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    pub interface: u32,
    /// The reason, for display.
    pub why: PickReason,
}

/// Why a connection uses its interface.
#[derive(Clone, Debug, PartialEq)]
pub enum PickReason {
    /// There was only one candidate.
    Only,
    /// The method always uses the system's first choice.
    First,
    /// It was its turn.
    Turn,
    /// It was its turn, and it gets this share of the connections.
    Share(f64),
    /// Everything is finished after `seconds` with it, and after `next` with the next best one.
    Finish {
        /// With this interface.
        seconds: f64,
        /// With the next best one.
        next: f64,
    },
    /// Its rate is unknown and assumed to be the mean of the others'.
    Unknown,
    /// The application waits for single packets, and this interface has the shortest round trip.
    ShortestRoundTrip(Duration),
}

impl fmt::Display for PickReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => f.write_str("the only candidate"),
            Self::First => f.write_str("the system's first choice (method only-one)"),
            Self::Turn => f.write_str("its turn"),
            Self::Share(share) => write!(f, "its turn, at {:.0} % of connections", share * 100.0),
            Self::Finish { seconds, next } => {
                write!(
                    f,
                    "all transfers finish in {seconds:.2} s with it, in {next:.2} s with the next best"
                )
            }
            Self::Unknown => f.write_str("its rate is not known yet and assumed to be average"),
            Self::ShortestRoundTrip(rtt) => {
                write!(
                    f,
                    "realtime traffic, and its round trip of {} ms is the shortest",
                    rtt.as_millis()
                )
            }
        }
    }
}

/// Assigns connections to interfaces.
#[derive(Clone, Debug, Default)]
pub struct ConnectionScheduler {
    method: ConnectionMethod,
    last: Option<u32>,
    credits: BTreeMap<u32, f64>,
}

impl ConnectionScheduler {
    /// Creates a scheduler with this method.
    pub fn new(method: ConnectionMethod) -> Self {
        Self { method, ..Self::default() }
    }

    pub fn method(&self) -> ConnectionMethod {
        self.method
    }

    /// Chooses the interface of a connection that is expected to move `demand` bytes; `None` without candidates. The
    /// order of the candidates is the system's preference, the best first.
    pub fn pick(&mut self, candidates: &[Candidate], demand: u64, nature: Nature) -> Option<Pick> {
        let first = candidates.first()?;
        if candidates.len() == 1 {
            return Some(Pick { interface: first.interface, why: PickReason::Only });
        }
        let pick = match self.method {
            ConnectionMethod::OnlyOne => {
                Pick { interface: first.interface, why: PickReason::First }
            }
            ConnectionMethod::RoundRobin => self.turn(candidates),
            ConnectionMethod::WeightedRoundRobin => self.weighted(candidates),
            ConnectionMethod::MaximumThroughput if nature == Nature::Realtime => {
                soonest_answer(candidates).unwrap_or_else(|| least_finish(candidates, demand))
            }
            ConnectionMethod::MaximumThroughput => least_finish(candidates, demand),
        };
        self.last = Some(pick.interface);
        Some(pick)
    }

    /// The next interface by index after the last one, from the beginning after the end.
    fn turn(&self, candidates: &[Candidate]) -> Pick {
        let mut indices: Vec<u32> = candidates.iter().map(|c| c.interface).collect();
        indices.sort_unstable();
        let next = indices.iter().find(|index| self.last.is_none_or(|last| **index > last));
        Pick { interface: *next.unwrap_or(&indices[0]), why: PickReason::Turn }
    }

    /// Smooth weighted rotation: each interface earns its weight; the richest is chosen and pays for all.
    fn weighted(&mut self, candidates: &[Candidate]) -> Pick {
        let rates = rates(candidates);
        let total: f64 = rates.iter().sum();
        let mut best = (f64::NEG_INFINITY, 0);
        let mut credits = BTreeMap::new();
        for (at, (candidate, rate)) in candidates.iter().zip(&rates).enumerate() {
            let credit = self.credits.get(&candidate.interface).copied().unwrap_or(0.0) + rate;
            credits.insert(candidate.interface, credit);
            if credit > best.0 {
                best = (credit, at);
            }
        }
        let interface = candidates[best.1].interface;
        if let Some(credit) = credits.get_mut(&interface) {
            *credit -= total;
        }
        // Interfaces that are gone lose their credit.
        self.credits = credits;
        Pick { interface, why: PickReason::Share(rates[best.1] / total) }
    }
}

/// Rates in bit/s. An unknown one is assumed to be the mean of the others, so that the interface is tried.
pub(crate) fn rates(candidates: &[Candidate]) -> Vec<f64> {
    let known: Vec<f64> =
        candidates.iter().filter(|c| c.rate > Rate::ZERO).map(|c| c.rate.as_bps() as f64).collect();
    let mean = match known.len() {
        0 => 1e6,
        n => known.iter().sum::<f64>() / n as f64,
    };
    let rate = |c: &Candidate| if c.rate > Rate::ZERO { c.rate.as_bps() as f64 } else { mean };
    candidates.iter().map(rate).collect()
}

/// Chooses the interface with which the present load and the new connection are finished first, where the interface
/// that finishes last counts; among equals, the one that finishes the new connection itself first.
fn least_finish(candidates: &[Candidate], demand: u64) -> Pick {
    let rates = rates(candidates);
    let alone =
        |at: usize, more: u64| candidates[at].load.saturating_add(more) as f64 * 8.0 / rates[at];
    let all = |chosen: usize| {
        let of = |at| alone(at, if at == chosen { demand } else { 0 });
        (0..candidates.len()).map(of).fold(0.0, f64::max)
    };
    let mut order: Vec<(f64, f64, usize)> =
        (0..candidates.len()).map(|at| (all(at), alone(at, demand), at)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    let ((seconds, own, at), (next, next_own, _)) = (order[0], order[1]);
    // If the slowest interface hides the difference, the end of the new connection itself was compared.
    let (seconds, next) = if next > seconds { (seconds, next) } else { (own, next_own) };
    let why = match candidates[at].rate {
        Rate::ZERO => PickReason::Unknown,
        _ => PickReason::Finish { seconds, next },
    };
    Pick { interface: candidates[at].interface, why }
}

/// The interface with the shortest round trip. This is ours: the paper names realtime applications and leaves them to
/// the user's rules.
fn soonest_answer(candidates: &[Candidate]) -> Option<Pick> {
    let known = candidates.iter().filter(|c| !c.rtt.is_zero());
    let best = known.min_by_key(|c| c.rtt)?;
    Some(Pick { interface: best.interface, why: PickReason::ShortestRoundTrip(best.rtt) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(interface: u32, mbps: f64, load: u64) -> Candidate {
        Candidate { interface, rate: Rate::from_mbps(mbps), load, rtt: Duration::ZERO }
    }

    fn picks(method: ConnectionMethod, candidates: &[Candidate], n: usize) -> Vec<u32> {
        let mut scheduler = ConnectionScheduler::new(method);
        (0..n)
            .map(|_| scheduler.pick(candidates, 1000, Nature::Unknown).unwrap().interface)
            .collect()
    }

    #[test]
    fn rotation_takes_each_interface_in_turn() {
        let three = [candidate(5, 1.0, 0), candidate(2, 1.0, 0), candidate(9, 1.0, 0)];
        assert_eq!(picks(ConnectionMethod::RoundRobin, &three, 5), [2, 5, 9, 2, 5]);
        assert_eq!(picks(ConnectionMethod::OnlyOne, &three, 3), [5, 5, 5]);
    }

    #[test]
    fn weights_are_the_rates() {
        let picks = picks(
            ConnectionMethod::WeightedRoundRobin,
            &[candidate(1, 3.0, 0), candidate(2, 1.0, 0)],
            8,
        );
        assert_eq!(picks, [1, 1, 2, 1, 1, 1, 2, 1]);
    }

    #[test]
    fn a_long_connection_does_not_go_to_the_slow_interface() {
        let mut scheduler = ConnectionScheduler::default();
        // 1 MB takes 4 s on the fast interface, which is busy for 4 s already, and 16 s on the slow one.
        let two = [candidate(1, 2.0, 1_000_000), candidate(2, 0.5, 0)];
        let pick = scheduler.pick(&two, 1_000_000, Nature::Bulk).unwrap();
        assert_eq!(
            pick,
            Pick { interface: 1, why: PickReason::Finish { seconds: 8.0, next: 16.0 } }
        );
        // A short connection does: everything ends when the fast interface ends, and this connection ends sooner.
        let pick = scheduler.pick(&two, 10_000, Nature::Unknown).unwrap();
        assert_eq!(pick.interface, 2);
    }

    #[test]
    fn an_interface_of_unknown_rate_is_tried() {
        let two = [candidate(1, 2.0, 1_000_000), candidate(2, 0.0, 0)];
        let pick = ConnectionScheduler::default().pick(&two, 1_000_000, Nature::Bulk).unwrap();
        assert_eq!(pick, Pick { interface: 2, why: PickReason::Unknown });
    }

    #[test]
    fn realtime_takes_the_shortest_round_trip() {
        let rtt = |c: Candidate, ms| Candidate { rtt: Duration::from_millis(ms), ..c };
        let two = [rtt(candidate(1, 100.0, 0), 80), rtt(candidate(2, 1.0, 0), 10)];
        let mut scheduler = ConnectionScheduler::default();
        assert_eq!(scheduler.pick(&two, 1000, Nature::Realtime).unwrap().interface, 2);
        assert_eq!(scheduler.pick(&two, 1000, Nature::Bulk).unwrap().interface, 1);
    }

    proptest! {
        #[test]
        fn no_other_choice_finishes_sooner(
            all in prop::collection::vec((1u64..1_000_000_000, 0u64..1 << 40), 2..6),
            demand in 0u64..1 << 40,
        ) {
            let candidates: Vec<Candidate> = all.iter().enumerate()
                .map(|(i, (bps, load))| Candidate {
                    interface: i as u32, rate: Rate::from_bps(*bps), load: *load, rtt: Duration::ZERO,
                }).collect();
            let end = |chosen: usize| all.iter().enumerate()
                .map(|(i, (bps, load))| (load + if i == chosen { demand } else { 0 }) as f64 * 8.0 / *bps as f64)
                .fold(0.0, f64::max);
            let pick = ConnectionScheduler::default().pick(&candidates, demand, Nature::Unknown).unwrap();
            let best = (0..all.len()).map(end).fold(f64::INFINITY, f64::min);
            prop_assert!(end(pick.interface as usize) <= best * (1.0 + 1e-12));
        }

        #[test]
        fn each_interface_gets_its_share(all in prop::collection::vec(1u64..100, 2..5)) {
            let candidates: Vec<Candidate> = all.iter().enumerate()
                .map(|(i, mbps)| candidate(i as u32, *mbps as f64, 0)).collect();
            let total: u64 = all.iter().sum();
            let picks = picks(ConnectionMethod::WeightedRoundRobin, &candidates, total as usize);
            for (i, weight) in all.iter().enumerate() {
                let got = picks.iter().filter(|pick| **pick == i as u32).count() as u64;
                prop_assert_eq!(got, *weight);
            }
        }
    }
}
