//! The synthetic PlanetLab's parameters.

/// The parameters from which the synthetic PlanetLab is drawn; docs/simulation.md gives the reason for each value.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Nodes, one a site (UKAIRO §2.1: 201).
    pub nodes: usize,
    /// Servers outside of PlanetLab, listed after its nodes (§4.1.1: around 100).
    pub outside: usize,
    /// What a commercial site adds to the logarithm of an outside server's quality.
    pub outside_quality: f64,
    /// The rate that an outside server's access sends and receives, Mbit/s.
    pub outside_access: f64,
    /// The round trip's factor over light in fibre along the great circle: median and
    /// deviation of the logarithm, per pair.
    pub inflation: (f64, f64),
    /// The mean of a node's own share of each round trip, ms; exponential.
    pub last_mile_ms: f64,
    /// The rate of a median path of 100 ms RTT between two median nodes, Mbit/s.
    pub base_mbps: f64,
    /// The rate falls with RTT to this power (Mathis et al. say 1; windows and short paths less).
    pub rtt_power: f64,
    /// The deviation of the logarithm of a node's quality, in each direction.
    pub node_sigma: f64,
    /// The correlation of a node's two directions.
    pub node_symmetry: f64,
    /// The number of sites at the heart of the research networks, with the fastest access, and what that adds to the
    /// logarithm of their quality. They are the first sites; roles are drawn.
    pub hubs: (usize, f64),
    /// A pair's lasting deviation of the logarithm.
    pub pair_sigma: f64,
    /// The share of pairs that are congested, and the mean and the greatest depth of the congestion in the logarithm.
    pub congested: (f64, f64, f64),
    /// The drift of a pair: deviation of the logarithm, and how long it takes to forget, days.
    pub pair_drift: (f64, f64),
    /// The drift of a node, likewise.
    pub node_drift: (f64, f64),
    /// The noise of a measurement: deviation of the logarithm.
    pub noise_sigma: f64,
    /// Access links: median rate in Mbit/s and deviation of the logarithm.
    pub access: (f64, f64),
    /// The fastest rate that any host sends or receives, Mbit/s.
    pub ceiling_mbps: f64,
    /// The rate that a host can forward: median in Mbit/s and deviation of the logarithm.
    pub forward: (f64, f64),
    /// The factor by which hubs can forward more.
    pub hub_forward: f64,
    /// The rate of a detour relative to that of its slower leg: relays copy in user space.
    pub relayed: f64,
    /// What a new connection loses at its start, in round trips at its full rate.
    pub ramp: f64,
    /// Deviation of the logarithm of a path's rate from one download to the next.
    pub download_sigma: f64,
    /// The same between sampling and the rest of one download.
    pub phase_sigma: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            nodes: 201,
            outside: 0,
            outside_quality: -0.46,
            outside_access: 1000.0,
            inflation: (2.0, 0.03),
            last_mile_ms: 0.5,
            base_mbps: 12.0,
            rtt_power: 0.95,
            node_sigma: 0.05,
            node_symmetry: 1.0,
            hubs: (9, 0.42),
            pair_sigma: 0.05,
            congested: (0.05, 1.0, 4.0),
            pair_drift: (0.2, 3.0),
            node_drift: (0.1, 28.0),
            noise_sigma: 0.3,
            access: (89.0, 0.635),
            ceiling_mbps: 94.0,
            forward: (6.7, 0.5),
            hub_forward: 2.6,
            relayed: 0.94,
            ramp: 17.0,
            download_sigma: 0.2,
            phase_sigma: 0.15,
        }
    }
}

impl Parameters {
    /// 71 regions of clouds, for use without the real grid: fast, with many connections at once so that RTT matters
    /// less, and three sizes of access. Not calibrated to anything.
    pub fn cloud() -> Self {
        Self {
            nodes: 71,
            base_mbps: 4000.0,
            rtt_power: 0.4,
            hubs: (14, 0.3),
            pair_sigma: 0.35,
            noise_sigma: 0.1,
            access: (6000.0, 0.35),
            ceiling_mbps: 10_000.0,
            forward: (5000.0, 0.3),
            hub_forward: 1.0,
            download_sigma: 0.1,
            phase_sigma: 0.05,
            ramp: 4.0,
            relayed: 1.0,
            ..Self::default()
        }
    }

    /// All sites: nodes and outside servers.
    pub const fn sites(&self) -> usize {
        self.nodes + self.outside
    }
}
