//! The synthetic PlanetLab's parameters.

/// What the synthetic PlanetLab is drawn from; docs/simulation.md says why each has its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Nodes, one a site (UKAIRO §2.1: 201).
    pub nodes: usize,
    /// The round trip's factor over light in fibre along the great circle: median and
    /// deviation of the logarithm, per pair.
    pub inflation: (f64, f64),
    /// The mean of a node's own share of each round trip, ms; exponential.
    pub last_mile_ms: f64,
    /// The rate of a median path of 100 ms RTT between two median nodes, Mbit/s.
    pub base_mbps: f64,
    /// The rate falls with RTT to this power (Mathis et al. say 1; windows and short paths less).
    pub rtt_power: f64,
    /// A node's quality: the deviation of the logarithm, of each direction.
    pub node_sigma: f64,
    /// The correlation of a node's two directions.
    pub node_symmetry: f64,
    /// The share of sites at the heart of the research networks, and what that adds to the
    /// logarithm of their quality.
    pub hubs: (f64, f64),
    /// A pair's lasting deviation of the logarithm.
    pub pair_sigma: f64,
    /// The drift of a pair: deviation of the logarithm, and how long it takes to forget, days.
    pub pair_drift: (f64, f64),
    /// The drift of a node, likewise.
    pub node_drift: (f64, f64),
    /// What differs from one measurement to the next: deviation of the logarithm.
    pub noise_sigma: f64,
    /// Access links: median rate in Mbit/s and deviation of the logarithm.
    pub access: (f64, f64),
    /// No host sends or receives faster than this, Mbit/s.
    pub ceiling_mbps: f64,
    /// What a host can forward: median in Mbit/s and deviation of the logarithm.
    pub forward: (f64, f64),
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            nodes: 201,
            inflation: (1.7, 0.2),
            last_mile_ms: 4.0,
            base_mbps: 12.0,
            rtt_power: 0.7,
            node_sigma: 0.5,
            node_symmetry: 0.6,
            hubs: (0.1, 0.5),
            pair_sigma: 0.5,
            pair_drift: (0.3, 14.0),
            node_drift: (0.2, 14.0),
            noise_sigma: 0.2,
            access: (70.0, 0.6),
            ceiling_mbps: 94.0,
            forward: (35.0, 0.4),
        }
    }
}
