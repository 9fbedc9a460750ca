//! The data on which a figure is computed.

use crate::{
    crowd::{Noise, Settings},
    matrix::Matrix,
    planetlab::{Parameters, PlanetLab},
    random, stats,
    world::{Trunks, World},
};

/// Only direct paths slower than this are detoured, Mbit/s (UKAIRO §4: "only for direct paths with bandwidth below" 40
/// Mbit/s, which "we cannot sustain").
pub const PLANETLAB_LIMIT: f64 = 40.0;

/// A data set, real or synthetic.
#[derive(Clone, Debug)]
pub struct Input {
    /// The rates that planning knows, Mbit/s.
    pub planned: Matrix,
    /// The rates by which plans are judged where nothing is downloaded, Mbit/s: the same, or later ones.
    pub judged: Matrix,
    /// The network in which downloads run.
    pub world: World,
    /// Nodes from this index on only serve files.
    pub inside: usize,
    /// Only direct paths slower than this are detoured, Mbit/s; infinite: all.
    pub limit: f64,
    /// How clients download.
    pub settings: Settings,
    /// The drift over days, where it is modelled.
    pub days: Option<PlanetLab>,
}

/// Nodes by role; no node has two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roles {
    /// The relays, which are measured among each other.
    pub detours: Vec<usize>,
    /// All others, in random order.
    pub others: Vec<usize>,
}

impl Input {
    /// The synthetic PlanetLab of this seed, with this many outside servers.
    pub fn planetlab(seed: u64, outside: usize) -> Self {
        Self::from_planetlab(Parameters { outside, ..Parameters::default() }, seed)
    }

    /// A synthetic PlanetLab with other parameters.
    pub fn from_planetlab(parameters: Parameters, seed: u64) -> Self {
        let settings = Settings {
            size: 320.0,
            relayed: parameters.relayed,
            ramp: parameters.ramp,
            noise: Noise {
                seed,
                round: 0,
                download: parameters.download_sigma,
                phase: parameters.phase_sigma,
            },
            ..SETTINGS
        };
        let inside = parameters.nodes;
        let days = PlanetLab::new(parameters, seed);
        let measured = days.measured();
        let world = World {
            way: days.ways(),
            rtt: days.rtt().clone(),
            up: days.up().to_vec(),
            down: days.down().to_vec(),
            forward: days.forward().to_vec(),
            trunks: None,
        };
        let (planned, judged) = (measured.clone(), measured);
        let limit = PLANETLAB_LIMIT;
        Self { planned, judged, world, inside, limit, settings, days: Some(days) }
    }

    /// An input of measured rates (Mbit/s) to plan with and to judge by, and of round trips (ms).
    ///
    /// A file is as large as what the median pair moves in 21 s (as 40 MB on PlanetLab); rates vary from one download
    /// to the next by `noise`; all direct paths may be detoured.
    pub fn from_matrices(
        planned: Matrix,
        judged: Matrix,
        rtt: Matrix,
        noise: f64,
        seed: u64,
    ) -> Self {
        let world = World::from_matrix(judged.clone(), rtt);
        let rates: Vec<f64> = judged.known().map(|(_, _, rate)| rate).collect();
        let noise = Noise { seed, round: 0, download: noise, phase: noise / 2.0 };
        let settings = Settings { size: 21.0 * stats::median(&rates), noise, ..SETTINGS };
        let (inside, limit) = (judged.nodes(), f64::INFINITY);
        Self { planned, judged, world, inside, limit, settings, days: None }
    }

    /// Draws roles from this seed: `detours` of the inside nodes relay.
    pub fn draw_roles(&self, seed: u64, draw: u64, detours: usize) -> Roles {
        let mut random = random::stream(seed, "cast", draw);
        let mut detours_first = random::sample(&mut random, self.inside, self.inside);
        let others = detours_first.split_off(detours.min(self.inside));
        Roles { detours: detours_first, others }
    }

    /// The number of nodes here that corresponds to this many of the paper's 201.
    pub fn scale_count(&self, nodes: usize) -> usize {
        (nodes * self.inside + 100) / 201
    }

    /// Gives the links between areas `headroom` times the rate that the direct paths of `pairs` together want of them;
    /// does nothing without areas.
    pub fn add_trunks(&mut self, pairs: &[(usize, usize)], headroom: f64) {
        let Some(days) = &self.days else { return };
        let area = days.areas().to_vec();
        let mut wanted = Matrix::unknown(PlanetLab::AREAS);
        for &(from, to) in pairs {
            let (a, b) = (area[from], area[to]);
            let more = headroom * self.planned.get(from, to).unwrap_or(0.0);
            wanted.set(a, b, Some(wanted.get(a, b).unwrap_or(0.0) + more));
        }
        self.world.trunks = Some(Trunks { area, capacity: wanted });
    }
}

/// The number of round trips that slow start costs on a path that nothing else slows down, approximately.
const RAMP: f64 = 4.0;

/// The settings of UKAIRO §3.2.1 and §4.
const SETTINGS: Settings = Settings {
    size: 320.0,
    sampling: 5.0,
    cut_off: 20.0,
    relayed: 1.0,
    ramp: RAMP,
    noise: Noise { seed: 0, round: 0, download: 0.0, phase: 0.0 },
};
