//! A synthetic PlanetLab: 201 sites, their round trips, and TCP rates that drift over days.
//!
//! The rate from i to j is the least of what i's access sends, what j's access receives, and what the way between them
//! gives to one TCP connection: `base · (RTT/100 ms)^−power · exp(out_i + in_j + pair_ij + drift(t))`.
//! docs/simulation.md states each parameter, the reason for its value, and the results.

mod geography;
mod parameters;

pub use parameters::Parameters;

use crate::{
    matrix::Matrix,
    random::{self, Stream},
};

/// The sites, and their rates day by day.
#[derive(Clone, Debug)]
pub struct PlanetLab {
    parameters: Parameters,
    seed: u64,
    day: u32,
    areas: Vec<usize>,
    rtt: Matrix,
    /// ln Mbit/s of each way, without drift and access links; row-major.
    lasting: Vec<f64>,
    pair_drift: Vec<f64>,
    /// The drift of sending and of receiving.
    node_drift: [Vec<f64>; 2],
    /// Mbit/s that each node's access sends and receives.
    access: [Vec<f64>; 2],
    forward: Vec<f64>,
}

impl PlanetLab {
    /// The sites of this seed on day 0.
    pub fn new(parameters: Parameters, seed: u64) -> Self {
        let n = parameters.sites();
        let mut random = random::stream(seed, "round trips", 0);
        let (areas, rtt) = geography::round_trips(&parameters, &mut random);
        let lasting = draw_lasting_rates(&parameters, &rtt, seed);
        let mut random = random::stream(seed, "drift", 0);
        let mut normals = |count: usize, sigma: f64| -> Vec<f64> {
            (0..count).map(|_| sigma * random::normal(&mut random)).collect()
        };
        let node_drift = [0, 1].map(|_| normals(n, parameters.node_drift.0));
        let pair_drift = normals(n * n, parameters.pair_drift.0);
        let access = access(&parameters, &mut random::stream(seed, "access", 0));
        let forward = forward(&parameters, &mut random::stream(seed, "forward", 0));
        Self {
            parameters,
            seed,
            day: 0,
            areas,
            rtt,
            lasting,
            pair_drift,
            node_drift,
            access,
            forward,
        }
    }

    /// The day, from 0.
    pub const fn day(&self) -> u32 {
        self.day
    }

    /// The number of nodes, without outside servers.
    pub const fn inside(&self) -> usize {
        self.parameters.nodes
    }

    /// Round trips in ms.
    pub const fn rtt(&self) -> &Matrix {
        &self.rtt
    }

    /// The area of each site, below [`PlanetLab::AREAS`].
    pub fn areas(&self) -> &[usize] {
        &self.areas
    }

    /// The number of areas.
    pub const AREAS: usize = geography::COUNT;

    /// Mbit/s that each node's access link sends.
    pub fn up(&self) -> &[f64] {
        &self.access[0]
    }

    /// Mbit/s that each node's access link receives.
    pub fn down(&self) -> &[f64] {
        &self.access[1]
    }

    /// Mbit/s that each node can forward.
    pub fn forward(&self) -> &[f64] {
        &self.forward
    }

    /// Lets `days` pass: all drifts continue.
    pub fn advance(&mut self, days: u32) {
        self.day += days;
        let mut random = random::stream(self.seed, "drift", self.day.into());
        let Parameters { node_drift, pair_drift, .. } = self.parameters;
        for drift in &mut self.node_drift {
            step(drift, node_drift, days, &mut random);
        }
        step(&mut self.pair_drift, pair_drift, days, &mut random);
    }

    /// The rates of this day, Mbit/s, without a measurement's noise.
    pub fn rates(&self) -> Matrix {
        self.rates_with(|| 0.0)
    }

    /// The result of measuring every pair once on this day, Mbit/s: the same for the same day.
    pub fn measured(&self) -> Matrix {
        let mut random = random::stream(self.seed, "measurement", self.day.into());
        let sigma = self.parameters.noise_sigma;
        self.rates_with(|| sigma * random::normal(&mut random))
    }

    /// The rate of one connection on the ways alone on this day, Mbit/s, without access links.
    pub fn ways(&self) -> Matrix {
        let n = self.parameters.sites();
        Matrix::from_fn(n, |i, j| Some(self.way(i, j).exp()))
    }

    fn rates_with(&self, mut noise: impl FnMut() -> f64) -> Matrix {
        let n = self.parameters.sites();
        Matrix::from_fn(n, |i, j| {
            let way = (self.way(i, j) + noise()).exp();
            Some(way.min(self.access[0][i]).min(self.access[1][j]))
        })
    }

    /// ln Mbit/s of a way on this day.
    fn way(&self, i: usize, j: usize) -> f64 {
        let at = i * self.parameters.sites() + j;
        self.lasting[at] + self.pair_drift[at] + self.node_drift[0][i] + self.node_drift[1][j]
    }
}

/// Lets days of an Ornstein–Uhlenbeck process pass that has deviation `sigma` and forgets in `tau` days.
fn step(drift: &mut [f64], (sigma, tau): (f64, f64), days: u32, random: &mut Stream) {
    let kept = (-f64::from(days) / tau).exp();
    let new = sigma * (1.0 - kept * kept).sqrt();
    drift.iter_mut().for_each(|x| *x = kept * *x + new * random::normal(random));
}

/// ln Mbit/s of each way, without drift and noise.
fn draw_lasting_rates(parameters: &Parameters, rtt: &Matrix, seed: u64) -> Vec<f64> {
    let n = parameters.sites();
    let mut random = random::stream(seed, "quality", 0);
    let mut quality: Vec<[f64; 2]> = (0..n).map(|_| quality(parameters, &mut random)).collect();
    let hubs = quality.iter_mut().take(parameters.hubs.0).flatten();
    hubs.for_each(|quality| *quality += parameters.hubs.1);
    let outside = quality.iter_mut().skip(parameters.nodes).flatten();
    outside.for_each(|quality| *quality += parameters.outside_quality);
    let mut random = random::stream(seed, "pairs", 0);
    let way = |at: usize| {
        let (i, j) = (at / n, at % n);
        let far = rtt.get(i, j).map_or(0.0, |ms| (ms / 100.0).ln());
        parameters.base_mbps.ln() - parameters.rtt_power * far
            + quality[i][0]
            + quality[j][1]
            + pair(parameters, &mut random)
    };
    (0..n * n).map(way).collect()
}

/// A node's quality of sending and of receiving, correlated.
fn quality(parameters: &Parameters, random: &mut Stream) -> [f64; 2] {
    let shared = random::normal(random);
    let rho = parameters.node_symmetry;
    [0, 1].map(|_| {
        let own = random::normal(random);
        parameters.node_sigma * (rho.sqrt() * shared + (1.0 - rho).sqrt() * own)
    })
}

/// A pair's own deviation, and its congestion.
fn pair(parameters: &Parameters, random: &mut Stream) -> f64 {
    let own = parameters.pair_sigma * random::normal(random);
    let (share, depth, deepest) = parameters.congested;
    let congested = random::unit(random) < share;
    let lost = random::exponential(random, depth).min(deepest);
    own - if congested { lost } else { 0.0 }
}

fn access(parameters: &Parameters, random: &mut Stream) -> [Vec<f64>; 2] {
    let (median, sigma) = parameters.access;
    let mut link = || {
        let mbps = median * (sigma * random::normal(random)).exp();
        mbps.min(parameters.ceiling_mbps)
    };
    let outside = parameters.outside_access;
    [0, 1].map(|_| {
        let hub = |at| at < parameters.hubs.0;
        let inside = (0..parameters.nodes).map(|at| (hub(at), link()));
        let inside = inside.map(|(hub, mbps)| if hub { parameters.ceiling_mbps } else { mbps });
        inside.chain(std::iter::repeat_n(outside, parameters.outside)).collect()
    })
}

fn forward(parameters: &Parameters, random: &mut Stream) -> Vec<f64> {
    let (median, sigma) = parameters.forward;
    let of = |at: usize| if at < parameters.hubs.0 { parameters.hub_forward } else { 1.0 };
    let mut limit = |at| of(at) * median * (sigma * random::normal(random)).exp();
    (0..parameters.sites()).map(|at| limit(at).min(parameters.ceiling_mbps)).collect()
}
