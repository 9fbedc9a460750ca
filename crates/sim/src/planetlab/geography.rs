//! The places of the sites, and the round trips between them.

use super::Parameters;
use crate::{
    matrix::Matrix,
    random::{self, Stream},
};

/// Where PlanetLab's sites were: the weight of each area, its middle (latitude, longitude) and the spread of sites
/// around it, all in degrees.
const AREAS: [(f64, f64, f64, f64); 9] = [
    (0.22, 41.0, -76.0, 3.5),
    (0.14, 40.0, -90.0, 4.0),
    (0.13, 37.0, -120.0, 3.0),
    (0.26, 48.5, 5.0, 4.0),
    (0.08, 50.0, 20.0, 4.0),
    (0.10, 35.5, 130.0, 5.0),
    (0.03, 22.0, 114.0, 4.0),
    (0.02, -23.0, -46.0, 3.0),
    (0.02, -34.0, 148.0, 4.0),
];

/// Kilometres of fibre that light covers there and back in a millisecond.
const KM_PER_MS: f64 = 100.0;

/// The number of areas.
pub(super) const COUNT: usize = AREAS.len();

/// The area of each site, and the round trips between all sites, ms, the same in both directions.
pub(super) fn round_trips(parameters: &Parameters, random: &mut Stream) -> (Vec<usize>, Matrix) {
    let n = parameters.sites();
    let (areas, places): (Vec<usize>, Vec<(f64, f64)>) = (0..n).map(|_| place(random)).unzip();
    let own: Vec<f64> =
        (0..n).map(|_| random::exponential(random, parameters.last_mile_ms)).collect();
    let mut rtt = Matrix::unknown(n);
    let (median, sigma) = parameters.inflation;
    for i in 0..n {
        for j in 0..i {
            let inflation = (median * (sigma * random::normal(random)).exp()).max(1.0);
            let ms = distance_km(places[i], places[j]) * inflation / KM_PER_MS + own[i] + own[j];
            rtt.set(i, j, Some(ms.max(0.5)));
            rtt.set(j, i, Some(ms.max(0.5)));
        }
    }
    (areas, rtt)
}

fn place(random: &mut Stream) -> (usize, (f64, f64)) {
    let mut left = random::unit(random);
    let area = AREAS.iter().position(|area| {
        left -= area.0;
        left < 0.0
    });
    let area = area.unwrap_or(0);
    let (_, latitude, longitude, spread) = AREAS[area];
    let mut around = |middle: f64| middle + spread * random::normal(random);
    (area, (around(latitude), around(longitude)))
}

/// The distance along the great circle (haversine), on a sphere of the Earth's mean radius.
fn distance_km(a: (f64, f64), b: (f64, f64)) -> f64 {
    let [(lat1, lon1), (lat2, lon2)] = [a, b].map(|(x, y)| (x.to_radians(), y.to_radians()));
    let half = |x: f64| (x / 2.0).sin().powi(2);
    let h = half(lat2 - lat1) + lat1.cos() * lat2.cos() * half(lon2 - lon1);
    2.0 * 6371.0 * h.sqrt().min(1.0).asin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_along_the_great_circle() {
        // London and New York: 5,570 km.
        let km = distance_km((51.5, -0.13), (40.7, -74.0));
        assert!((km - 5570.0).abs() < 30.0, "{km}");
        assert!(distance_km((10.0, 20.0), (10.0, 20.0)) < 1e-9);
    }

    #[test]
    fn the_weights_of_areas_sum_to_one() {
        assert!((AREAS.iter().map(|a| a.0).sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
