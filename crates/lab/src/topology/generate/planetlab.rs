//! A drawn matrix of PlanetLab-like paths.
//!
//! Shaped after what UKAIRO §2.1 and Figure 2 report of 201 university hosts
//! in 2010: rates over three orders of magnitude with the 85th percentile near
//! 40 Mbit/s, detours that help four of five pairs, round trips that seldom
//! get shorter by the same detours. The distributions, all from the seed:
//!
//! - A host is in one of five regions (weights and places below), 4 ms (one
//!   deviation, one way) around its centre on a plane whose unit is a
//!   millisecond of one-way delay.
//! - Round trip of a pair, the same both ways: 2 × distance × inflation + the
//!   two hosts' last miles. Inflation is log-normal (median 1.25, σ 0.2); a tenth
//!   of the pairs go a further 1.4 to 2.2 times as far, by policy, so that the
//!   triangle inequality does not hold. A last mile is log-normal (median 1 ms, σ 0.7).
//! - Rate of an ordered pair: log-normal (median 13 Mbit/s, σ 1.25), 0.5 to 200 Mbit/s.
//! - Access of a host: seven of eight have 100 Mbit/s both ways; the rest log-uniform
//!   from 10 to 100 Mbit/s down, and a half to all of that up.
//! - Loss of an ordered pair: none for three quarters, else log-uniform from
//!   0.001 % to 0.3 %.
//!
//! Every host and pair has a generator of its own, so that the first n hosts
//! of a larger network are the network of n hosts.

use super::matrix::Drawn;
use crate::topology::{Draws, LinkSpec, Loss, derive_seed};
use std::time::Duration;
use thalweg_units::Rate;

/// Share of hosts and centre (ms one way): North America west and east, Europe,
/// East Asia, South America. Distances give the usual round trips: 60 ms
/// across North America, 85 over the Atlantic, 120 over the Pacific.
const REGIONS: [(f64, [f64; 2]); 5] = [
    (0.20, [0.0, 0.0]),
    (0.30, [30.0, 0.0]),
    (0.30, [72.0, 0.0]),
    (0.15, [-55.0, -20.0]),
    (0.05, [40.0, 60.0]),
];
/// No two hosts share a machine room.
const RTT_MIN_MS: f64 = 2.0;

struct Host {
    place: [f64; 2],
    last_mile_ms: f64,
    access: LinkSpec,
}

/// Draws n hosts and all pairs; `scale` multiplies every rate.
pub(super) fn draw(n: usize, seed: u64, scale: f64) -> Drawn {
    let hosts: Vec<_> = (0..n).map(|i| host(seed, i, scale)).collect();
    let link = |i: usize, j: usize| {
        if i == j {
            return LinkSpec::default();
        }
        let one_way = rtt_ms(seed, i, j, &hosts) / 2.0;
        let mut draws = Draws::new(derive_seed(seed, &format!("planetlab {i} to {j}")));
        LinkSpec {
            loss: Some(loss(&mut draws)),
            ..LinkSpec::new(rate(&mut draws, scale), ms(one_way))
        }
    };
    let pairs = (0..n).map(|i| (0..n).map(|j| link(i, j)).collect()).collect();
    Drawn { pairs, access: hosts.into_iter().map(|h| Some(h.access)).collect() }
}

fn host(seed: u64, i: usize, scale: f64) -> Host {
    let mut draws = Draws::new(derive_seed(seed, &format!("planetlab host {i}")));
    let centre = region(draws.uniform());
    let place = centre.map(|c| c + 4.0 * draws.normal());
    let last_mile_ms = draws.lognormal(1.0, 0.7);
    Host { place, last_mile_ms, access: access(&mut draws, scale) }
}

fn region(mut u: f64) -> [f64; 2] {
    for (share, centre) in REGIONS {
        if u < share {
            return centre;
        }
        u -= share;
    }
    REGIONS[0].1
}

fn access(draws: &mut Draws, scale: f64) -> LinkSpec {
    let (down, up) = if draws.chance(0.875) {
        (100.0, 100.0)
    } else {
        let down = log_uniform(draws, 10.0, 100.0);
        (down, down * draws.between(0.5, 1.0))
    };
    let spec = |mbps: f64| LinkSpec { rate: Some(kbps(mbps * scale)), ..LinkSpec::default() };
    LinkSpec { rev: Some(Box::new(spec(down))), ..spec(up) }
}

/// The same for both orders of the pair.
fn rtt_ms(seed: u64, i: usize, j: usize, hosts: &[Host]) -> f64 {
    let (a, b) = (i.min(j), i.max(j));
    let mut draws = Draws::new(derive_seed(seed, &format!("planetlab pair {a} {b}")));
    let (pa, pb) = (hosts[a].place, hosts[b].place);
    let distance = (pa[0] - pb[0]).hypot(pa[1] - pb[1]);
    let mut inflation = draws.lognormal(1.25, 0.2).max(1.0);
    if draws.chance(0.1) {
        inflation *= draws.between(1.4, 2.2);
    }
    let last_miles = hosts[a].last_mile_ms + hosts[b].last_mile_ms;
    (2.0 * distance * inflation + last_miles).max(RTT_MIN_MS)
}

fn rate(draws: &mut Draws, scale: f64) -> Rate {
    kbps(draws.lognormal(13.0, 1.25).clamp(0.5, 200.0) * scale)
}

fn loss(draws: &mut Draws) -> Loss {
    if draws.chance(0.75) { Loss::None } else { Loss::random(log_uniform(draws, 1e-5, 3e-3)) }
}

fn log_uniform(draws: &mut Draws, low: f64, high: f64) -> f64 {
    draws.between(low.ln(), high.ln()).exp()
}

/// Whole kilobits, so that the text form is exact.
fn kbps(mbps: f64) -> Rate {
    Rate::from_bps(((mbps * 1e3).round() as u64).max(1) * 1000)
}

/// Whole microseconds.
fn ms(ms: f64) -> Duration {
    Duration::from_micros((ms * 1e3).round() as u64)
}
