//! The network in which downloads run: access links, relays' forwarding, trunks, and the rate of one connection between
//! two nodes.

use crate::{engine::Engine, matrix::Matrix};

/// The links between areas, which all pairs of nodes in them share.
#[derive(Clone, Debug, PartialEq)]
pub struct Trunks {
    /// The area of each node.
    pub area: Vec<usize>,
    /// Mbit/s from one area to another; unknown: no limit.
    pub capacity: Matrix,
}

/// A network at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// The rate of one connection between two nodes, Mbit/s: its fair share against all traffic that is not simulated;
    /// unknown: they cannot reach each other.
    pub way: Matrix,
    /// Round trips, ms; unknown: no delay.
    pub rtt: Matrix,
    /// Mbit/s that each node's access link sends.
    pub up: Vec<f64>,
    /// Mbit/s that each node's access link receives.
    pub down: Vec<f64>,
    /// Mbit/s that each node can forward for others.
    pub forward: Vec<f64>,
    /// The links that areas share, if they are modelled.
    pub trunks: Option<Trunks>,
}

/// The path of a download: from the server, by a relay or directly, to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The sender.
    pub server: usize,
    /// The relay, if any.
    pub relay: Option<usize>,
    /// The receiver.
    pub client: usize,
}

impl World {
    /// Creates a network of which only rates are known: a node's access is as fast as its fastest pair, and it forwards
    /// as fast as the slower of its two directions.
    pub fn from_matrix(way: Matrix, rtt: Matrix) -> Self {
        let n = way.nodes();
        let fastest = |pairs: &Matrix, node| {
            (0..n).filter_map(|other| pairs.get(node, other)).fold(0.0, f64::max)
        };
        let back = way.transposed();
        let up: Vec<f64> = (0..n).map(|node| fastest(&way, node)).collect();
        let down: Vec<f64> = (0..n).map(|node| fastest(&back, node)).collect();
        let forward = up.iter().zip(&down).map(|(up, down)| up.min(*down)).collect();
        Self { way, rtt, up, down, forward, trunks: None }
    }

    /// The number of nodes.
    pub const fn nodes(&self) -> usize {
        self.way.nodes()
    }

    /// The rate of one connection alone over this path, Mbit/s: the least of the legs' ways, the access links and the
    /// relay's forwarding; 0 if a leg does not exist.
    pub fn lone_rate(&self, path: Path) -> f64 {
        let leg = |from: usize, to: usize| {
            let way = self.way.get(from, to).unwrap_or(0.0);
            way.min(self.up[from]).min(self.down[to])
        };
        match path.relay {
            None => leg(path.server, path.client),
            Some(relay) => {
                leg(path.server, relay).min(leg(relay, path.client)).min(self.forward[relay])
            }
        }
    }

    /// The rate of one connection over the ways of this path alone, Mbit/s.
    pub fn way_rate(&self, path: Path) -> f64 {
        let way = |from, to| self.way.get(from, to).unwrap_or(0.0);
        match path.relay {
            None => way(path.server, path.client),
            Some(relay) => way(path.server, relay).min(way(relay, path.client)),
        }
    }

    /// The time until the first byte, s: directly 2 round trips (TCP's handshake and the request), by a relay 4 to it
    /// and 2 beyond (both handshakes, SOCKS's two questions, the request).
    pub fn delay(&self, path: Path) -> f64 {
        let rtt = |a, b| self.rtt.get(a, b).unwrap_or(0.0) / 1000.0;
        match path.relay {
            None => 2.0 * rtt(path.client, path.server),
            Some(relay) => 4.0 * rtt(path.client, relay) + 2.0 * rtt(relay, path.server),
        }
    }

    /// The round trip of a path's longer leg, s: of two connections, each recovers by its own.
    pub fn longer_leg_rtt(&self, path: Path) -> f64 {
        let rtt = |a, b| self.rtt.get(a, b).unwrap_or(0.0) / 1000.0;
        match path.relay {
            None => rtt(path.client, path.server),
            Some(relay) => rtt(path.client, relay).max(rtt(relay, path.server)),
        }
    }

    /// Creates an engine of the shared links, all idle.
    pub fn engine(&self) -> Engine {
        let nodes = [&self.up, &self.down, &self.forward];
        let mut capacity: Vec<f64> = nodes.into_iter().flatten().copied().collect();
        if let Some(trunks) = &self.trunks {
            let areas = trunks.capacity.nodes();
            let trunk = |at| trunks.capacity.get(at / areas, at % areas).unwrap_or(f64::INFINITY);
            capacity.extend((0..areas * areas).map(trunk));
        }
        Engine::new(capacity)
    }

    /// The engine's links that a path uses, each once.
    pub fn links(&self, path: Path) -> Vec<u32> {
        let mut links = Vec::with_capacity(7);
        match path.relay {
            None => self.leg(path.server, path.client, &mut links),
            Some(relay) => {
                self.leg(path.server, relay, &mut links);
                links.push(self.forward_link(relay));
                self.leg(relay, path.client, &mut links);
            }
        }
        links.sort_unstable();
        links.dedup();
        links
    }

    /// The engine's link for a node's forwarding.
    pub fn forward_link(&self, node: usize) -> u32 {
        (2 * self.nodes() + node) as u32
    }

    fn leg(&self, from: usize, to: usize, links: &mut Vec<u32>) {
        let n = self.nodes();
        links.extend([from as u32, (n + to) as u32]);
        if let Some(trunks) = &self.trunks {
            let (a, b) = (trunks.area[from], trunks.area[to]);
            if a != b {
                links.push((3 * n + a * trunks.capacity.nodes() + b) as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> World {
        let mut way = Matrix::from_fn(3, |_, _| Some(10.0));
        way.set(0, 1, Some(4.0));
        let rtt = Matrix::from_fn(3, |_, _| Some(100.0));
        World::from_matrix(way, rtt)
    }

    #[test]
    fn a_path_is_as_fast_as_its_slowest_part() {
        let mut world = three();
        let direct = Path { server: 0, relay: None, client: 1 };
        let detour = Path { relay: Some(2), ..direct };
        assert_eq!((world.lone_rate(direct), world.lone_rate(detour)), (4.0, 10.0));
        world.forward[2] = 3.0;
        assert_eq!((world.lone_rate(detour), world.way_rate(detour)), (3.0, 10.0));
        assert!((world.delay(direct) - 0.2).abs() < 1e-12);
        assert!((world.delay(detour) - 0.6).abs() < 1e-12);
    }

    #[test]
    fn paths_use_access_links_forwarding_and_trunks_between_areas_only() {
        let mut world = three();
        let detour = Path { server: 0, relay: Some(2), client: 1 };
        assert_eq!(world.links(detour), [0, 2, 4, 5, 8]);
        let capacity = Matrix::from_fn(2, |_, _| Some(50.0));
        world.trunks = Some(Trunks { area: vec![0, 0, 1], capacity });
        // Areas 0 → 1 is trunk 9 + 1, back is 9 + 2.
        assert_eq!(world.links(detour), [0, 2, 4, 5, 8, 10, 11]);
        assert_eq!(world.links(Path { relay: None, ..detour }), [0, 4]);
    }
}
