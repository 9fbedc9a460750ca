//! How a path's rate varies from one download to the next.

use crate::{
    random,
    world::{Path, World},
};

/// Variation of rates, the same for the same seed, round and path: arms that try the same
/// path in the same download see the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Of whose draws.
    pub seed: u64,
    /// Which of several downloads of the same file by the same client.
    pub round: u64,
    /// From one download to the next: deviation of the logarithm.
    pub download: f64,
    /// Between sampling and the rest of one download, likewise.
    pub phase: f64,
}

impl Noise {
    /// The factors on a path's rate while it is sampled, and for the rest of the download.
    pub fn factors(&self, world: &World, path: Path) -> [f64; 2] {
        let n = world.nodes() as u64;
        let relay = path.relay.map_or(0, |relay| relay as u64 + 1);
        let index = ((path.server as u64 * n + path.client as u64) * (n + 1) + relay)
            .wrapping_add(self.round.wrapping_mul(n * n * (n + 1)));
        let mut random = random::stream(self.seed, "downloads", index);
        let shared = self.download * random::normal(&mut random);
        [0, 1].map(|_| (shared + self.phase * random::normal(&mut random)).exp())
    }
}
