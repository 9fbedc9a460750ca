//! Transit-stub networks, as the GT-ITM generator makes them (§VI, "Simulation Setup").

use crate::random::{self, Stream};
use std::collections::VecDeque;

/// Transit nodes of each of the two transit domains. The paper's are 4 on average.
const TRANSIT: usize = 4;
/// Stub domains of each transit node, 3 on average.
const STUBS: usize = 3;
/// Nodes of each stub domain, 6 on average: 2·4·(1 + 3·6) = 152.
const STUB_NODES: usize = 6;
/// The probabilities of edges within a transit domain, and within a stub domain.
const TRANSIT_EDGES: f64 = 0.6;
const STUB_EDGES: f64 = 0.2;

/// Mbit/s within a transit domain, across the two, and to or in stub domains.
const WITHIN: f64 = 10.0;
const PEERING: f64 = 5.0;
const STUB: f64 = 2.5;

/// The longest round trip in the network, s.
const LONGEST_RTT: f64 = 0.080;

/// A network of routers and hosts. All averages of the paper are taken exactly, so each network has 152 nodes.
/// Distances are uniform, where GT-ITM's are those of nodes in the plane.
#[derive(Clone, Debug)]
pub struct Topology {
    nodes: usize,
    /// (from, to) by link; the two directions of a link are neighbours.
    ends: Vec<(usize, usize)>,
    /// Mbit/s, by link.
    pub capacity: Vec<f64>,
    /// One-way delay by link, s.
    delay: Vec<f64>,
    /// Links by the node they leave.
    out: Vec<Vec<u32>>,
}

impl Topology {
    /// The number of nodes: the transit nodes of A and of B come first, then stub domain by stub domain.
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// A node's name: `a0` … `b3` are transit nodes, `a0s1n2` is the third node of the second stub domain of `a0`.
    pub fn name(&self, node: usize) -> String {
        let transit =
            |at: usize| format!("{}{}", if at < TRANSIT { "a" } else { "b" }, at % TRANSIT);
        let Some(at) = node.checked_sub(2 * TRANSIT) else { return transit(node) };
        let stub = at / STUB_NODES;
        format!("{}s{}n{}", transit(stub / STUBS), stub % STUBS, at % STUB_NODES)
    }

    /// The ends (from, to) of a link. The link after an even one is its other direction.
    pub fn ends(&self, link: u32) -> (usize, usize) {
        self.ends[link as usize]
    }

    /// The one-way delay of a link, s.
    pub fn delay(&self, link: u32) -> f64 {
        self.delay[link as usize]
    }

    /// Creates the network of a seed.
    pub fn transit_stub(seed: u64) -> Self {
        let mut random = random::stream(seed, "transit-stub", 0);
        let nodes = 2 * TRANSIT * (1 + STUBS * STUB_NODES);
        let mut net = Self {
            nodes,
            ends: Vec::new(),
            capacity: Vec::new(),
            delay: Vec::new(),
            out: vec![Vec::new(); nodes],
        };
        for domain in 0..2 {
            let members: Vec<usize> = (0..TRANSIT).map(|at| transit(domain, at)).collect();
            net.domain(&members, TRANSIT_EDGES, WITHIN, &mut random);
        }
        // The two peering points, (B0, A0) and (B1, A1).
        (0..2).for_each(|at| net.edge(transit(0, at), transit(1, at), PEERING, &mut random));
        for stub in 0..2 * TRANSIT * STUBS {
            let members = stub_members(stub);
            net.domain(&members, STUB_EDGES, STUB, &mut random);
            net.edge(stub / STUBS, members[0], STUB, &mut random);
        }
        net.scale();
        net
    }

    /// Adds a domain's edges; disconnected parts are joined in a row.
    fn domain(&mut self, members: &[usize], share: f64, capacity: f64, random: &mut Stream) {
        for (at, a) in members.iter().enumerate() {
            for b in &members[at + 1..] {
                if random::unit(random) < share {
                    self.edge(*a, *b, capacity, random);
                }
            }
        }
        for pair in members.windows(2) {
            if self.route(members[0], pair[1]).is_none() {
                self.edge(pair[0], pair[1], capacity, random);
            }
        }
    }

    fn edge(&mut self, a: usize, b: usize, capacity: f64, random: &mut Stream) {
        let delay = 0.2 + random::unit(random);
        for (from, to) in [(a, b), (b, a)] {
            self.out[from].push(self.ends.len() as u32);
            self.ends.push((from, to));
            self.capacity.push(capacity);
            self.delay.push(delay);
        }
    }

    /// Scales all delays so that the longest round trip is the paper's.
    fn scale(&mut self) {
        let longest = (0..self.nodes)
            .flat_map(|a| (0..self.nodes).map(move |b| (a, b)))
            .filter_map(|(a, b)| self.route(a, b))
            .map(|links| links.iter().map(|link| self.delay[*link as usize]).sum::<f64>())
            .fold(0.0, f64::max);
        let by = LONGEST_RTT / 2.0 / longest;
        self.delay.iter_mut().for_each(|delay| *delay *= by);
    }

    /// The links from one node to another by the fewest hops, as ns-2 routes; among equals the path found first. `None`
    /// if there is no path.
    pub fn route(&self, from: usize, to: usize) -> Option<Vec<u32>> {
        let mut by = vec![None; self.nodes];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if node == to {
                return Some(self.trace_back(from, to, &by));
            }
            for link in &self.out[node] {
                let next = self.ends[*link as usize].1;
                if next != from && by[next].is_none() {
                    by[next] = Some(*link);
                    queue.push_back(next);
                }
            }
        }
        None
    }

    fn trace_back(&self, from: usize, to: usize, by: &[Option<u32>]) -> Vec<u32> {
        let (mut at, mut links) = (to, Vec::new());
        while let Some(link) = by[at].filter(|_| at != from) {
            links.push(link);
            at = self.ends[link as usize].0;
        }
        links.reverse();
        links
    }

    /// The round trip over these links and back, s.
    pub fn rtt(&self, links: &[u32]) -> f64 {
        2.0 * links.iter().map(|link| self.delay[*link as usize]).sum::<f64>()
    }

    /// The peering link from domain B to domain A at point 0 or 1.
    pub fn peering(&self, point: usize) -> Option<u32> {
        let ends = (transit(1, point), transit(0, point));
        self.ends.iter().position(|link| *link == ends).map(|link| link as u32)
    }

    /// A node of the stub domain that is the `which`-th (0 to 2) of a transit node; domain 0 is A, 1 is B.
    pub fn stub_node(&self, domain: usize, at: usize, which: usize, node: usize) -> usize {
        stub_members(transit(domain, at) * STUBS + which)[node % STUB_NODES]
    }
}

const fn transit(domain: usize, at: usize) -> usize {
    domain * TRANSIT + at
}

fn stub_members(stub: usize) -> Vec<usize> {
    let first = 2 * TRANSIT + stub * STUB_NODES;
    (first..first + STUB_NODES).collect()
}

/// The hosts of an evaluation: "the destination server in the stub domain connected to A1, and
/// … 7 other bistros in stub domains connected to other transit nodes". The destination is last.
pub fn bistros(net: &Topology, seed: u64) -> Vec<usize> {
    let mut random = random::stream(seed, "bistros", 0);
    let mut place =
        |domain, at| net.stub_node(domain, at, 0, random::index(&mut random, STUB_NODES));
    let others = [(0, 0), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (1, 3)];
    let mut hosts: Vec<usize> = others.iter().map(|(domain, at)| place(*domain, *at)).collect();
    hosts.push(place(0, 1));
    hosts
}

/// The nodes where background flows end in domain 0 (A) or 1 (B): all nodes of the second and the third stub domain of
/// the transit nodes with a peering point, "different from those holding the bistros".
pub fn background_ends(net: &Topology, domain: usize) -> Vec<usize> {
    let stubs = (0..2).flat_map(|point| [(point, 1), (point, 2)]);
    let nodes = |(point, which)| (0..STUB_NODES).map(move |n| (point, which, n));
    stubs.flat_map(nodes).map(|(point, which, n)| net.stub_node(domain, point, which, n)).collect()
}
