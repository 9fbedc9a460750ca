//! Draws a matrix of paths between regions of three cloud providers.
//!
//! If the environment variable [`GRID`] names a file with measured pairs, regions are chosen from it. Otherwise the matrix
//! is drawn from a model of our own, whose medians and spreads are those of Skyplane's published throughput profiles of
//! November 2022 (64 connections, 71 regions, 4,970 ordered pairs): what a provider lets out of a region limits most
//! pairs, so that rates depend on the two providers more than on the distance.
//!
//! Rates are scaled to what a lab can emulate: 10 Mbit/s for each measured Gbit/s.
//!
//! Every host and pair has its own random generator, so that the first n hosts of a larger network are the network of n
//! hosts.

use super::{
    matrix::Drawn,
    planetlab::{kbps, ms},
};
use crate::topology::{Draws, LinkSpec, TopologyError, derive_seed};
use std::{collections::BTreeMap, env, fs};

/// The environment variable with the name of a CSV file of measured pairs. Its columns: `src`, `dst` (names of regions),
/// Gbit/s, Gbit/s of an earlier run, round trip in ms. Further columns are ignored, and so are pairs without the first
/// rate or the round trip.
pub const GRID: &str = "THALWEG_GRID";

/// Mbit/s in the lab for a measured Gbit/s.
const SCALE: f64 = 10.0;

/// Median rate, Gbit/s, and spread (σ of the logarithm) from a provider (row) to another one (column): AWS, Azure, Google.
const RATES: [[(f64, f64); 3]; 3] = [
    [(5.0, 0.06), (5.1, 0.05), (5.1, 0.05)],
    [(3.6, 0.6), (14.7, 0.25), (7.3, 0.5)],
    [(6.6, 0.25), (8.1, 0.12), (22.9, 0.3)],
];

/// Centres of regions, ms of one-way delay on a plane: North America west and east, Europe, South and East Asia, South
/// America, Australia. Medians of round trips between them are then those of the profiles, 16 to 300 ms.
const CENTRES: [[f64; 2]; 7] = [
    [0.0, 0.0],
    [30.0, 0.0],
    [70.0, -5.0],
    [125.0, 30.0],
    [-55.0, -20.0],
    [45.0, 60.0],
    [-60.0, 45.0],
];

/// A host's region.
struct Region {
    /// The index into [`RATES`].
    provider: usize,
    /// In the plane of [`CENTRES`].
    place: [f64; 2],
}

/// Draws n hosts and all pairs; `scale` multiplies every rate. Access links are not drawn.
///
/// # Errors
/// If the file that [`GRID`] names cannot be read or has fewer than n regions with all their pairs.
pub(super) fn draw(n: usize, seed: u64, scale: f64) -> Result<Drawn, TopologyError> {
    let pairs = match env::var(GRID) {
        Ok(file) if !file.is_empty() => Grid::read(&file)?.pairs(n, seed, scale)?,
        _ => modelled(n, seed, scale),
    };
    Ok(Drawn { pairs, access: vec![None; n] })
}

fn modelled(n: usize, seed: u64, scale: f64) -> Vec<Vec<LinkSpec>> {
    let regions: Vec<Region> = (0..n).map(|i| region(seed, i)).collect();
    let link = |i: usize, j: usize| {
        let (from, to) = (&regions[i], &regions[j]);
        let distance = (from.place[0] - to.place[0]).hypot(from.place[1] - to.place[1]);
        let mut draws = Draws::new(derive_seed(seed, &format!("cloud {i} to {j}")));
        let (median, spread) = RATES[from.provider][to.provider];
        path(draws.lognormal(median, spread), 2.6 * distance + 2.0, scale)
    };
    (0..n).map(|i| (0..n).map(|j| link(i, j)).collect()).collect()
}

fn region(seed: u64, i: usize) -> Region {
    let mut draws = Draws::new(derive_seed(seed, &format!("cloud region {i}")));
    let centre = CENTRES[draws.below(CENTRES.len())];
    Region { provider: draws.below(RATES.len()), place: centre.map(|c| c + 5.0 * draws.normal()) }
}

/// A path with this rate in Gbit/s, as measured, and this round trip in milliseconds.
fn path(gbps: f64, rtt_ms: f64, scale: f64) -> LinkSpec {
    LinkSpec::new(kbps(gbps * SCALE * scale), ms(rtt_ms / 2.0))
}

/// Measured pairs: Gbit/s and round trip in milliseconds, by the names of two regions.
struct Grid(BTreeMap<String, BTreeMap<String, (f64, f64)>>);

impl Grid {
    fn read(file: &str) -> Result<Self, TopologyError> {
        let text = fs::read_to_string(file)
            .map_err(|why| TopologyError::value(GRID, file, format!("cannot be read: {why}")))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut pairs: BTreeMap<String, BTreeMap<String, (f64, f64)>> = BTreeMap::new();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let [from, to, gbps, _, rtt, ..] = fields[..] else { continue };
            if let (Ok(gbps), Ok(rtt)) = (gbps.parse(), rtt.parse()) {
                pairs.entry(from.to_owned()).or_default().insert(to.to_owned(), (gbps, rtt));
            }
        }
        Self(pairs)
    }

    /// The pairs of n regions that the seed chooses, one after the other, among those with measured pairs to and from
    /// all regions chosen before.
    fn pairs(&self, n: usize, seed: u64, scale: f64) -> Result<Vec<Vec<LinkSpec>>, TopologyError> {
        let mut chosen: Vec<&String> = Vec::new();
        for i in 0..n {
            let fits = |name: &&String| {
                !chosen.contains(name) && chosen.iter().all(|other| self.has_both(name, other))
            };
            let left: Vec<&String> = self.0.keys().filter(fits).collect();
            if left.is_empty() {
                let why = format!("has no {n} regions whose pairs were all measured");
                return Err(TopologyError::conflict(GRID, why));
            }
            let mut draws = Draws::new(derive_seed(seed, &format!("cloud region {i}")));
            chosen.push(left[draws.below(left.len())]);
        }
        let link = |from: &String, to: &String| {
            self.pair(from, to).map_or_else(LinkSpec::default, |(gbps, rtt)| path(gbps, rtt, scale))
        };
        Ok(chosen.iter().map(|a| chosen.iter().map(|b| link(a, b)).collect()).collect())
    }

    fn has_both(&self, a: &str, b: &str) -> bool {
        self.pair(a, b).is_some() && self.pair(b, a).is_some()
    }

    fn pair(&self, from: &str, to: &str) -> Option<(f64, f64)> {
        self.0.get(from)?.get(to).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn mbps(link: &LinkSpec) -> f64 {
        link.rate.unwrap().as_bps() as f64 / 1e6
    }

    #[test]
    fn the_model_has_rates_of_three_providers_and_round_trips_of_a_globe() {
        let pairs = modelled(40, 1, 1.0);
        let off_diagonal = |i: &usize, j: &usize| i != j;
        let all: Vec<&LinkSpec> = (0..40)
            .flat_map(|i| (0..40).filter(move |j| off_diagonal(&i, j)).map(move |j| (i, j)))
            .map(|(i, j)| &pairs[i][j])
            .collect();
        let mut rates: Vec<f64> = all.iter().map(|link| mbps(link)).collect();
        rates.sort_by(f64::total_cmp);
        // The profiles' quartiles are 50, 55 and 90.
        assert!((45.0..60.0).contains(&rates[rates.len() / 4]), "{}", rates[rates.len() / 4]);
        assert!(
            (70.0..130.0).contains(&rates[rates.len() * 3 / 4]),
            "{}",
            rates[rates.len() * 3 / 4]
        );
        let longest = all.iter().filter_map(|link| link.delay).max().unwrap();
        assert!(longest > Duration::from_millis(100) && longest < Duration::from_millis(350));
        assert_eq!(pairs[0][1].delay, pairs[1][0].delay);
    }

    #[test]
    fn the_first_hosts_are_those_of_a_smaller_network() {
        let (small, large) = (modelled(3, 7, 1.0), modelled(6, 7, 1.0));
        assert_eq!(small[0][2], large[0][2]);
        assert_ne!(small[0][2], modelled(3, 8, 1.0)[0][2]);
    }

    const MEASURED: &str = "src,dst,gbps_2022_11,gbps_2022_01,rtt_ms_2022_04,price\n\
        a,b,4,,20,0\nb,a,2,,22,0\na,c,,3,20,0\nb,c,9,9,30,0\nc,b,8,8,30,0\nno row\n";

    #[test]
    fn regions_are_chosen_among_those_whose_pairs_were_measured() {
        let grid = Grid::parse(MEASURED);
        for seed in 0..20 {
            // a and c have no rate in one direction and no row in the other: one of them is with b.
            let pairs = grid.pairs(2, seed, 1.0).unwrap();
            let rates = [mbps(&pairs[0][1]), mbps(&pairs[1][0])];
            assert!(
                [[40.0, 20.0], [20.0, 40.0], [90.0, 80.0], [80.0, 90.0]].contains(&rates),
                "{rates:?}"
            );
        }
        let error = grid.pairs(3, 1, 1.0).unwrap_err().to_string();
        assert!(error.contains("has no 3 regions"), "{error}");
    }

    #[test]
    fn a_grid_that_cannot_be_read_is_named() {
        let error = Grid::read("/nonexistent.csv").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(GRID) && error.contains("/nonexistent.csv"), "{error}");
    }
}
