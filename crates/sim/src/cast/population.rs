//! Synthetic hosts.

use crate::random::{self, Stream};
use thalweg_plan::{
    Graph,
    tree::{Host, Overlay, Storage},
};
use thalweg_units::{ByteSize, Rate};

/// Access lines: the share of hosts up to this one, Mbit/s out and in. Data centre, campus, home.
const LINES: [(f64, f64, f64); 3] =
    [(0.1, 1000.0, 1000.0), (0.7, 100.0, 100.0), (1.0, 20.0, 100.0)];

/// The rate of one connection between two hosts: log-uniform between these, Mbit/s.
const WAYS: (f64, f64) = (20.0, 400.0);

/// Hosts that send less than this do not forward, Mbit/s.
const LEAST_EGRESS: f64 = 25.0;

/// A source (node 0) and receivers.
#[derive(Clone, Debug)]
pub struct Population {
    /// The rates of the legs that are known.
    pub graph: Graph,
    pub hosts: Vec<Host>,
}

impl Population {
    /// Creates this many receivers, each with legs from the source and from `legs` others, at random. All are stores,
    /// or have rings of the same size.
    pub fn new(
        receivers: usize,
        legs: usize,
        egress: Rate,
        ring: Option<ByteSize>,
        seed: u64,
    ) -> Self {
        let mut random = random::stream(seed, "cast", receivers as u64);
        let keeps = ring.map_or(Storage::Store, Storage::Ring);
        let mut hosts = vec![Host::RECEIVER.with_access(Some(egress), None)];
        hosts.extend((0..receivers).map(|_| Host { keeps, ..line(&mut random) }));
        let mut graph = Graph::new(receivers + 1);
        for to in 1..=receivers {
            let others = random::sample(&mut random, receivers, legs.min(receivers));
            let from = others.into_iter().map(|other| other + 1).filter(|from| *from != to);
            for from in std::iter::once(0).chain(from) {
                graph.set(from, to, Some(way(&mut random)));
            }
        }
        Self { graph, hosts }
    }

    /// The overlay on which the tree is planned.
    pub fn overlay(&self) -> Overlay<'_> {
        Overlay { graph: &self.graph, source: 0, hosts: &self.hosts }
    }
}

fn line(random: &mut Stream) -> Host {
    let at = random::unit(random);
    let line = LINES.iter().find(|line| at < line.0).unwrap_or(&LINES[2]);
    let (out, into) = (Rate::from_mbps(line.1), Rate::from_mbps(line.2));
    Host::RECEIVER.with_access(Some(out), Some(into)).leaf_below(Rate::from_mbps(LEAST_EGRESS))
}

fn way(random: &mut Stream) -> Rate {
    Rate::from_mbps(WAYS.0 * (WAYS.1 / WAYS.0).powf(random::unit(random)))
}
