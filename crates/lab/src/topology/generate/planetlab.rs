//! Draws a matrix of PlanetLab-like paths.
//!
//! The model follows what UKAIRO §2 reports of 201 university hosts in 2010, one per site. The rate of a path is a
//! product, so that a good host is good for many paths and a ranking of detours is meaningful:
//!
//! rate = 17.5 Mbit/s × quality of both hosts × pair factor × (100 ms / RTT)^0.75,
//! and at most the rate of the two hosts' access links.
//!
//! All distributions are drawn from the seed:
//!
//! - A host is in one of five regions (weights and centres below), with a standard deviation of 4 ms (one way) around
//!   its centre, on a plane whose unit is a millisecond of one-way delay.
//! - Round-trip time of a pair, the same in both directions: 2 × distance × inflation + the two hosts' last miles, at
//!   least 2 ms. Inflation is log-normal (median 1.25, σ 0.03: a larger σ makes more detours shorter than was
//!   measured). For a tenth of the pairs it is a further 1.4 to 2.2 times as large, as by routing policy, so that the
//!   triangle inequality does not hold. A last mile is log-normal (median 1.5 ms, σ 0.7).
//! - Quality of a host: log-normal (σ 0.15), the same in and out.
//! - Pair factor of an ordered pair: log-normal (σ 0.45). Because of it each path has a different best detour, so that
//!   50 detours are not enough for all paths.
//! - Distance: TCP's rate falls with the round-trip time, because of its window and of loss (exponent 1). The exponent
//!   is smaller here because not every path is limited by that. This term favours detours close to the direct route.
//!   Round trips below 10 ms count as 10 ms.
//! - Access of a host: 82 % have 100 Mbit/s in both directions; the rest is log-uniform from 10 to 100 Mbit/s down, and
//!   a half to all of that up. Every detour shares the access links of the ends, which therefore determine how many
//!   paths gain nothing.
//! - Loss of an ordered pair: none for three quarters, else log-uniform from a hundredth to a quarter of the loss that
//!   TCP Reno tolerates at this rate and round-trip time, at most 0.3 %. So the path's limit is its rate, as for the
//!   paper's figures, which were measured with iperf.
//!
//! The parameters were fitted by random search at 201 hosts. Results for the seeds 1 to 10, with the first 50 hosts as
//! detours and the other 151 as clients, and rates as the median over their pairs:
//!
//! | What | Paper | Mean of the seeds | Range |
//! |---|---|---|---|
//! | Paths that gain ≥ 20 % and ≥ 1 Mbit/s by the best detour (§2.1) | 80.2 % | 80.9 % | 78.1–83.8 % |
//! | Best detours with a smaller round trip (§2.2.1) | 15.6 % | 16.1 % | 15.4–17.9 % |
//! | More round trip by the best detour, median (§2.2.1) | 10.9 ms | 11.5 ms | 10.2–12.8 ms |
//! | The same, relative | 8.3 % | 11.2 % | 9.2–12.3 % |
//! | 85th percentile of the rates, Mbit/s (§4) | about 40 | 40.4 | 38.1–42.7 |
//! | Median round trip, ms (§2.2.1: 10.9 / 0.083) | 131 | 134 | 114–160 |
//! | Gain that 50 detours keep, of all 201 (§2.2.2, Figure 1) | 71.4 % | 74.6 % | 71.0–79.5 % |
//! | The same, of 150 (§1) | 71.4 % | 78.5 % | 72.9–85.1 % |
//! | Gain of the median pair, random-5 (Figure 9) | 20 % | 22 % | 17–30 % |
//! | The same, client-oblivious-5 (Figure 9) | > 50 % | 53 % | 41–65 % |
//! | The same, client-specific-5 (Figure 2) | near best | 78 % | 66–94 % |
//! | Direct, Mbit/s | | 14.3 | 13.2–15.1 |
//! | random-5, Mbit/s | | 20.9 | 19.1–22.7 |
//! | client-oblivious-5 (Eq. 3), Mbit/s | more | 25.0 | 22.3–27.5 |
//! | client-specific-5 (Eq. 4), Mbit/s | more still | 28.6 | 26.7–30.3 |
//! | Best of 50, Mbit/s | little more | 31.3 | 29.5–32.7 |
//!
//! Differences from PlanetLab: the median of the round trips through the best detours is 18 ms (12 to 22) above that of
//! the direct ones; in the paper it is 10.9 ms, if that is the quantity it means. Detours chosen for latency alone lose
//! rate on about a third of the paths; in the paper's Figure 5 on more than half.
//!
//! Every host and pair has its own random generator, so that the first n hosts of a larger network are the network of n
//! hosts.

use super::matrix::Drawn;
use crate::topology::{Draws, LinkSpec, Loss, derive_seed};
use std::time::Duration;
use thalweg_units::Rate;

/// The share of hosts and centre (ms one way) of each region: North America west and east, Europe, East Asia, South
/// America. The distances give the usual round trips: 60 ms across North America, 85 over the Atlantic, 120 over the
/// Pacific.
const REGIONS: [(f64, [f64; 2]); 5] = [
    (0.17, [0.0, 0.0]),
    (0.28, [30.0, 0.0]),
    (0.33, [72.0, 0.0]),
    (0.16, [-55.0, -20.0]),
    (0.06, [40.0, 60.0]),
];
/// The smallest round-trip time: no two hosts share a site.
const RTT_MIN_MS: f64 = 2.0;
/// The payload of a packet, bits: 1,460 bytes.
const SEGMENT_BITS: f64 = 11_680.0;

struct DrawnHost {
    place: [f64; 2],
    last_mile_ms: f64,
    quality: f64,
    access: LinkSpec,
}

/// Draws n hosts and all pairs; `scale` multiplies every rate.
pub(super) fn draw(n: usize, seed: u64, scale: f64) -> Drawn {
    let hosts: Vec<_> = (0..n).map(|i| host(seed, i, scale)).collect();
    let link = |i: usize, j: usize| {
        if i == j {
            return LinkSpec::default();
        }
        let rtt_ms = rtt_ms(seed, i, j, &hosts);
        let mut draws = Draws::new(derive_seed(seed, &format!("planetlab {i} to {j}")));
        let mbps = scale * rate_mbps(&mut draws, hosts[i].quality * hosts[j].quality, rtt_ms);
        let loss = Some(loss(&mut draws, mbps, rtt_ms));
        LinkSpec { loss, ..LinkSpec::new(kbps(mbps), ms(rtt_ms / 2.0)) }
    };
    let pairs = (0..n).map(|i| (0..n).map(|j| link(i, j)).collect()).collect();
    Drawn { pairs, access: hosts.into_iter().map(|h| Some(h.access)).collect() }
}

fn host(seed: u64, i: usize, scale: f64) -> DrawnHost {
    let mut draws = Draws::new(derive_seed(seed, &format!("planetlab host {i}")));
    let centre = region(draws.uniform());
    let place = centre.map(|c| c + 4.0 * draws.normal());
    let last_mile_ms = draws.lognormal(1.5, 0.7);
    let quality = draws.lognormal(1.0, 0.15);
    DrawnHost { place, last_mile_ms, quality, access: access(&mut draws, scale) }
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
    let (down, up) = if draws.chance(0.82) {
        (100.0, 100.0)
    } else {
        let down = log_uniform(draws, 10.0, 100.0);
        (down, down * draws.between(0.5, 1.0))
    };
    let spec = |mbps: f64| LinkSpec { rate: Some(kbps(mbps * scale)), ..LinkSpec::default() };
    LinkSpec { rev: Some(Box::new(spec(down))), ..spec(up) }
}

/// The round-trip time of a pair, the same for both orders.
fn rtt_ms(seed: u64, i: usize, j: usize, hosts: &[DrawnHost]) -> f64 {
    let (a, b) = (i.min(j), i.max(j));
    let mut draws = Draws::new(derive_seed(seed, &format!("planetlab pair {a} {b}")));
    let (pa, pb) = (hosts[a].place, hosts[b].place);
    let distance = (pa[0] - pb[0]).hypot(pa[1] - pb[1]);
    let mut inflation = draws.lognormal(1.25, 0.03);
    if draws.chance(0.1) {
        inflation *= draws.between(1.4, 2.2);
    }
    let last_miles = hosts[a].last_mile_ms + hosts[b].last_mile_ms;
    (2.0 * distance * inflation + last_miles).max(RTT_MIN_MS)
}

/// The rate without access links; `quality` is the product of both hosts' qualities.
fn rate_mbps(draws: &mut Draws, quality: f64, rtt_ms: f64) -> f64 {
    let distance = (100.0 / rtt_ms.max(10.0)).powf(0.75);
    (17.5 * quality * distance * draws.lognormal(1.0, 0.45)).clamp(0.5, 200.0)
}

/// Loss of at most a quarter of that at which Reno just reaches this rate, so that Reno could reach at least twice the
/// rate.
///
/// Mathis et al. 1997 (UKAIRO's reference \[27\]): rate = segment / RTT × √(3 / 2p), solved for p.
fn loss(draws: &mut Draws, mbps: f64, rtt_ms: f64) -> Loss {
    if draws.chance(0.75) {
        return Loss::None;
    }
    let segments_per_rtt = mbps * rtt_ms * 1e3 / SEGMENT_BITS;
    let borne = 1.5 / segments_per_rtt.powi(2);
    Loss::random(log_uniform(draws, 0.01 * borne, 0.25 * borne).min(3e-3))
}

fn log_uniform(draws: &mut Draws, low: f64, high: f64) -> f64 {
    draws.between(low.ln(), high.ln()).exp()
}

/// A rate in whole kbit/s, so that the text form is exact.
pub(super) fn kbps(mbps: f64) -> Rate {
    Rate::from_bps(((mbps * 1e3).round() as u64).max(1) * 1000)
}

/// A duration in whole microseconds, so that the text form is exact.
pub(super) fn ms(ms: f64) -> Duration {
    Duration::from_micros((ms * 1e3).round() as u64)
}
