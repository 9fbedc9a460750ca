//! What a figure is computed on.

use crate::{
    crowd::{Noise, Settings},
    matrix::Matrix,
    planetlab::{Parameters, PlanetLab},
    random, stats,
    world::{Trunks, World},
};

/// The pairs between which detours are looked for (UKAIRO §4: "only for direct paths with
/// bandwidth below" 40 Mbit/s, which "we cannot sustain").
pub const PLANETLAB_LIMIT: f64 = 40.0;

/// A data set, real or synthetic.
#[derive(Clone, Debug)]
pub struct Input {
    /// What planning knows, Mbit/s.
    pub planned: Matrix,
    /// What plans are judged by where nothing is downloaded, Mbit/s: the same, or later.
    pub judged: Matrix,
    /// What downloads meet.
    pub world: World,
    /// Nodes from here on only serve files.
    pub inside: usize,
    /// Only direct paths slower than this are detoured, Mbit/s; infinite: all.
    pub limit: f64,
    /// How clients download.
    pub settings: Settings,
    /// The drift over days, where it is modelled.
    pub days: Option<PlanetLab>,
}

/// Some nodes in their roles, none in two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    /// Measured among each other; they relay.
    pub detours: Vec<usize>,
    /// All others, in random order.
    pub others: Vec<usize>,
}

impl Input {
    /// The synthetic PlanetLab of this seed, with so many outside servers.
    pub fn planetlab(seed: u64, outside: usize) -> Self {
        Self::of_planetlab(Parameters { outside, ..Parameters::default() }, seed)
    }

    /// A synthetic PlanetLab of other parameters.
    pub fn of_planetlab(parameters: Parameters, seed: u64) -> Self {
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

    /// Measured rates (Mbit/s) to plan with and to judge by, and round trips (ms).
    ///
    /// A file is as large as the median pair moves in 21 s (as 40 MB on PlanetLab's); rates
    /// vary from one download to the next by `noise`; all direct paths may be detoured.
    pub fn of_matrices(
        planned: Matrix,
        judged: Matrix,
        rtt: Matrix,
        noise: f64,
        seed: u64,
    ) -> Self {
        let world = World::of_matrix(judged.clone(), rtt);
        let rates: Vec<f64> = judged.known().map(|(_, _, rate)| rate).collect();
        let noise = Noise { seed, round: 0, download: noise, phase: noise / 2.0 };
        let settings = Settings { size: 21.0 * stats::median(&rates), noise, ..SETTINGS };
        let (inside, limit) = (judged.nodes(), f64::INFINITY);
        Self { planned, judged, world, inside, limit, settings, days: None }
    }

    /// Roles for a draw of this seed: `detours` of the inside nodes relay.
    pub fn cast(&self, seed: u64, draw: u64, detours: usize) -> Cast {
        let mut random = random::stream(seed, "cast", draw);
        let mut detours_first = random::sample(&mut random, self.inside, self.inside);
        let others = detours_first.split_off(detours.min(self.inside));
        Cast { detours: detours_first, others }
    }

    /// The paper's number of its 201 nodes, of as many as there are here.
    pub fn of_201(&self, nodes: usize) -> usize {
        (nodes * self.inside + 100) / 201
    }

    /// Lets the links between areas carry `headroom` times what the direct ways of `pairs`
    /// together want of them; nothing happens where there are no areas.
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

/// Slow start on a path that nothing else slows down loses about so many round trips.
const RAMP: f64 = 4.0;

/// UKAIRO §3.2.1 and §4.
const SETTINGS: Settings = Settings {
    size: 320.0,
    sampling: 5.0,
    cut_off: 20.0,
    relayed: 1.0,
    ramp: RAMP,
    noise: Noise { seed: 0, round: 0, download: 0.0, phase: 0.0 },
};
