//! Network coordinates, which predict round trips that were not measured.
//!
//! Source: Dabek et al., Vivaldi (SIGCOMM 2004), §3.4 with height vectors (§5.4), which
//! PeerWise (UKAIRO §4.1's rival) builds upon.

use crate::{
    matrix::Matrix,
    random::{self, Stream},
};

/// Coordinates, ms: two dimensions and the height of the access link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Coordinates {
    x: f64,
    y: f64,
    height: f64,
    /// The node's own confidence: its relative error.
    error: f64,
}

/// The number of rounds in which each node samples some others.
const ROUNDS: usize = 60;
/// The number of nodes that each samples in a round.
const NEIGHBOURS: usize = 8;
/// Vivaldi's c_c and c_e.
const GAIN: f64 = 0.25;

/// The round trips that the coordinates predict, ms.
pub(super) fn predicted(rtt: &Matrix, random: &mut Stream) -> Matrix {
    let n = rtt.nodes();
    let begin = |_| Coordinates {
        x: random::normal(random),
        y: random::normal(random),
        height: 1.0,
        error: 1.0,
    };
    let mut places: Vec<Coordinates> = (0..n).map(begin).collect();
    for _ in 0..ROUNDS {
        for node in 0..n {
            for other in random::sample(random, n, NEIGHBOURS) {
                if let Some(ms) = rtt.get(node, other) {
                    places[node] = moved(places[node], places[other], ms);
                }
            }
        }
    }
    Matrix::from_fn(n, |i, j| Some(distance(places[i], places[j])))
}

fn distance(a: Coordinates, b: Coordinates) -> f64 {
    (a.x - b.x).hypot(a.y - b.y) + a.height + b.height
}

/// A node's next coordinates, after it measured a round trip to another node.
fn moved(own: Coordinates, other: Coordinates, ms: f64) -> Coordinates {
    let far = distance(own, other);
    let weight = own.error / (own.error + other.error).max(1e-9);
    let wrong = (far - ms).abs() / ms.max(0.1);
    let error = (wrong * GAIN * weight + own.error * (1.0 - GAIN * weight)).clamp(0.01, 2.0);
    let force = GAIN * weight * (ms - far);
    let (dx, dy) = (own.x - other.x, own.y - other.y);
    let whole = (dx.hypot(dy) + own.height + other.height).max(1e-9);
    Coordinates {
        x: own.x + force * dx / whole,
        y: own.y + force * dy / whole,
        height: (own.height + force * (own.height + other.height) / whole).max(0.1),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats;

    #[test]
    fn a_plane_is_learnt() {
        let mut random = random::stream(4, "plane", 0);
        let at: Vec<(f64, f64)> = (0..40)
            .map(|_| (100.0 * random::unit(&mut random), 100.0 * random::unit(&mut random)))
            .collect();
        let rtt =
            Matrix::from_fn(40, |i, j| Some(5.0 + (at[i].0 - at[j].0).hypot(at[i].1 - at[j].1)));
        let guess = predicted(&rtt, &mut random);
        let errors: Vec<f64> =
            rtt.known().map(|(i, j, ms)| (guess.raw(i, j) - ms).abs() / ms).collect();
        assert!(stats::median(&errors) < 0.15, "{}", stats::median(&errors));
    }
}
