use super::*;
use crate::train::{OVERHEAD, Stamp};
use std::net::Ipv4Addr;
use thalweg_units::Time;

/// Links in a row, bit/s, with a router behind each but the last; some routers are silent.
struct Chain {
    links: Vec<f64>,
    silent: Vec<u8>,
    /// The time from a router's notice to its arrival, for each hop, s.
    back: f64,
}

impl Chain {
    fn of(mbps: &[f64]) -> Self {
        let links = mbps.iter().map(|mbps| mbps * 1e6).collect();
        Self { links, silent: vec![], back: 0.003 }
    }

    fn router(hop: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, hop).into()
    }

    fn send_train(&self, train: &Train) -> Flight {
        let mut free = vec![0.0; self.links.len()];
        let mut flight = Flight::default();
        for (place, probe) in train.probes().iter().enumerate() {
            let bits = f64::from(u32::from(probe.size) + OVERHEAD) * 8.0;
            let mut at = 1e-6 * place as f64;
            let (mut word, mut arrived) = (None, None);
            for (link, rate) in self.links.iter().enumerate() {
                at = f64::max(at, free[link]) + bits / rate;
                free[link] = at;
                let hop = link as u8 + 1;
                if link + 1 == self.links.len() {
                    arrived = Some(stamp(at + 77.0));
                } else if train.hops(place).is_some_and(|limit| limit.get() == hop) {
                    let back = stamp(at + self.back * f64::from(hop));
                    word = (!self.silent.contains(&hop))
                        .then_some(Expired { by: Self::router(hop), at: back });
                    break;
                }
            }
            flight.sent.push(Some(Time::from_nanos(1000 * place as u64)));
            flight.arrived.push(arrived);
            flight.expired.push(word);
        }
        flight
    }

    fn run(&self) -> Result<Vec<Finding>, EstimatorError> {
        let mut tool = Hops::new(HopsSettings::new(1472, OVERHEAD));
        loop {
            match tool.next() {
                Step::Done(result) => return result,
                Step::Send { train, .. } => {
                    let flight = self.send_train(&train);
                    tool.record(&flight);
                }
            }
        }
    }
}

fn stamp(s: f64) -> Stamp {
    Stamp::from_unix_nanos((s * 1e9) as u64)
}

/// The narrowest hop, and the lower end of its range.
fn narrowest(found: &[Finding]) -> Option<(f64, f64)> {
    let of = found.iter().find(|one| one.of == Quantity::NarrowestHop);
    of.map(|one| (one.low, one.value))
}

#[test]
fn the_narrowest_link_is_found_at_any_position() {
    let chains: [(&[f64], f64); 5] = [
        (&[100.0, 10.0, 50.0, 100.0], 2.0),
        (&[10.0, 50.0, 20.0], 1.0),
        (&[100.0, 50.0, 20.0, 10.0], 4.0),
        (&[100.0, 100.0, 9.0, 9.5, 100.0], 3.0),
        (&[100.0, 10.0], 2.0),
    ];
    for (links, hop) in chains {
        let found = Chain::of(links).run().unwrap();
        assert_eq!(narrowest(&found), Some((hop, hop)), "{links:?}: {found:?}");
        let rates = found.iter().filter(|one| matches!(one.of, Quantity::RateAtHop { .. }));
        let mut least = f64::INFINITY;
        for (one, link) in rates.zip(links) {
            least = least.min(*link);
            assert!((one.value / 1e6 / least - 1.0).abs() < 0.1, "{links:?}: {found:?}");
        }
    }
}

#[test]
fn the_destination_is_the_last_hop_and_the_routers_are_named() {
    let found = Chain::of(&[100.0, 10.0, 50.0]).run().unwrap();
    let of: Vec<Quantity> = found.iter().map(|one| one.of).collect();
    let at = |hop, router| Quantity::RateAtHop { hop, router };
    let routers = [1, 2].map(|hop| at(hop, Some(Chain::router(hop))));
    assert_eq!(of, [routers[0], routers[1], at(3, None), Quantity::NarrowestHop]);
}

#[test]
fn behind_silent_routers_the_narrowest_hop_is_a_range() {
    let mut chain = Chain::of(&[100.0, 100.0, 10.0, 50.0]);
    chain.silent = vec![2];
    let found = chain.run().unwrap();
    assert_eq!(narrowest(&found), Some((2.0, 3.0)), "{found:?}");
    chain.silent = vec![1, 2, 3];
    assert_eq!(chain.run(), Err(EstimatorError::Silent));
}

#[test]
fn only_the_first_train_looks_beyond_the_last_router() {
    let mut tool = Hops::new(HopsSettings::new(1000, OVERHEAD));
    let chain = Chain::of(&[100.0, 10.0, 50.0]);
    let Step::Send { train, after } = tool.next() else { panic!("done") };
    assert_eq!((train.probes().len(), after), (60 + 2 * 30, Duration::ZERO));
    let flight = chain.send_train(&train);
    tool.record(&flight);
    let Step::Send { train, after } = tool.next() else { panic!("done") };
    assert_eq!((train.probes().len(), after), (60 + 2 * 3, Duration::from_secs(2)));
    assert!(train.bytes() < 75_000, "{}", train.bytes());
}

#[test]
fn a_path_without_any_answer_is_an_error() {
    let mut tool = Hops::new(HopsSettings::new(1000, OVERHEAD));
    while let Step::Send { train, .. } = tool.next() {
        let count = train.probes().len();
        let (sent, arrived) = (vec![None; count], vec![None; count]);
        let flight = Flight { sent, arrived, ..Flight::default() };
        tool.record(&flight);
    }
    assert_eq!(tool.next(), Step::Done(Err(EstimatorError::Lost(2))));
}
