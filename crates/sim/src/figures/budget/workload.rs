//! Downloads between members, and what they reveal about paths.

use crate::{
    crowd::Settings,
    random::{self, Stream},
};
use thalweg_plan::{draw, schedule::Pair};

/// The number of downloads between two of the schedule's tests.
pub(super) const DOWNLOADS: usize = 1;
/// The number of relays that a download samples beside the direct path.
const RELAYS: f64 = 5.0;

/// Members that download. Clients are drawn uniformly, servers by Zipf's law: the k-th most popular one in proportion
/// to 1/k.
///
/// Only the direct path gives a sample, from server to client: for a relay's two legs, sampling gives no more than the
/// slower one's rate, and not which one that is.
#[derive(Debug)]
pub(super) struct Workload {
    popularity: Vec<f64>,
    random: Stream,
}

impl Workload {
    pub(super) fn new(nodes: usize, seed: u64) -> Self {
        let mut random = random::stream(seed, "workload", 0);
        let mut popularity = vec![0.0; nodes];
        for (at, node) in random::sample(&mut random, nodes, nodes).into_iter().enumerate() {
            popularity[node] = 1.0 / (at + 1) as f64;
        }
        Self { popularity, random }
    }

    /// The direct path of the next download.
    pub(super) fn next(&mut self) -> Option<Pair> {
        let server = draw::weighted(&self.popularity, &mut self.random)?;
        let client = random::index(&mut self.random, self.popularity.len());
        (client != server).then_some((server, client))
    }
}

/// The MB that the sampling of a direct path moves: at most its share of the file.
pub(super) fn sample_megabytes(mbps: f64, settings: &Settings) -> f64 {
    (mbps * settings.sampling).min(settings.size / (RELAYS + 1.0)) / 8.0
}

/// The most that a test moves, MB, and the longest time that it takes, s.
const TEST: (f64, f64) = (64.0, 5.0);

/// The MB that a test moves.
pub(super) fn test_megabytes(mbps: f64) -> f64 {
    (mbps * TEST.1 / 8.0).min(TEST.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn popular_servers_are_asked_more_often() {
        let mut workload = Workload::new(50, 3);
        let mut asked = vec![0; 50];
        (0..5000).filter_map(|_| workload.next()).for_each(|(server, _)| asked[server] += 1);
        asked.sort_unstable();
        // 1/k over 50: the first a share of 0.22, the last of 0.004.
        assert!((900..1300).contains(&asked[49]) && asked[0] < 50, "{asked:?}");
    }

    #[test]
    fn a_test_ends_at_its_time_or_its_cap() {
        assert!((test_megabytes(8.0) - 5.0).abs() < 1e-9);
        assert!((test_megabytes(5000.0) - 64.0).abs() < 1e-9);
    }
}
