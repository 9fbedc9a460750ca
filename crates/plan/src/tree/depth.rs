//! How throughput falls along a chain of rings, by depth and by buffer size: ROMA's future work.
//!
//! Eq. (2) says that a chain gives what its slowest hop gives. §VI-D measured less: with equal hops and rings of 3,000
//! packets of 512 B, the second and third receiver had 8 % and 7.7 % less than the one before (4.27, 3.92, 3.62
//! Mbit/s). Larger buffers lose less (Fig. 17), and over 200 hops throughput falls "exponentially", shown on log-log
//! axes as well (Fig. 18, 19). The paper gives no formula: these are ours.
//!
//! What a connection has sent after a time t differs from its mean rate µ times t with the variance `D·µ·t`: D is its
//! *dispersion*, in bytes (for a connection with independent losses, of the order of the packets between losses). A
//! ring between two connections is sometimes empty: what the child could have taken then is lost. It is sometimes full:
//! what arrives then is lost to the child. As a random walk between two walls (reflected Brownian motion on 0..B with
//! drift δ and variance s², Harrison, *Brownian Motion and Stochastic Flow Systems* (1985) §5), it is empty so often
//! that, of two connections with rates u and d, the child gets
//!
//! ```text
//! T = min(u, d) − |δ| / (exp(2·|δ|·B / s²) − 1),   δ = u − d,   s² = 2·D·µ
//! ```
//!
//! This is Eq. (2) as B grows or the rates differ, and loses the share ε = D/B where they are equal. We take ε as
//! D/(D+B), which is the same for large buffers and 1 without a buffer. [`Shape`] says how losses add up over equal
//! hops. Without a fit, [`ChainLoss::NONE`] is Eq. (2).

use thalweg_units::{ByteSize, Rate};

/// How losses add up over hops of equal rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Each hop loses the same share: `T₁·(1−ε)^(k−1)` at depth k (Fig. 18).
    Exponential,
    /// `T₁·k^−α`, α = −log₂(1−ε), so that depth 2 loses the same (Fig. 19's axes).
    Power,
    /// By the walk itself: a hop behind one that lost is faster than what arrives, and loses less.
    Walk,
}

/// The model, with the parameters of an experiment's fit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChainLoss {
    /// How losses add up.
    pub shape: Shape,
    /// D, the dispersion.
    pub dispersion: ByteSize,
}

/// The flow that arrives at a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArrivingFlow {
    /// The mean rate, bit/s.
    pub rate: f64,
    /// The rate by Eq. (2), bit/s: that of the slowest hop since the last node that stores.
    pub width: f64,
    /// The number of hops of about this width since the last node that stores; from 1 up.
    pub hops: f64,
}

impl ArrivingFlow {
    /// The flow over a leg of this rate, from a node that has the data that it sends.
    pub const fn first(rate: f64) -> Self {
        Self { rate, width: rate, hops: 1.0 }
    }
}

impl ChainLoss {
    /// No loss: Eq. (2).
    pub const NONE: Self = Self { shape: Shape::Exponential, dispersion: ByteSize::from_bytes(0) };

    /// The losses of Fig. 15's chain (§VI-D: 4.27, 3.92 and 3.62 Mbit/s behind rings of 3,000 packets of 512 B), fitted
    /// by [`LineFit`]: 7.9 % a hop there, 11.7 % behind 1 MB. Plans use it as long as nothing better was measured.
    pub const FIGURE_15: Self =
        Self { shape: Shape::Exponential, dispersion: ByteSize::from_bytes(132_000) };

    /// ε: the share lost behind a ring of this size, its children's socket buffers included, if both connections have
    /// the same rate; 0 to 1.
    pub fn at_equal_rates(&self, buffer: ByteSize) -> f64 {
        let (d, b) = (self.dispersion.as_bytes() as f64, buffer.as_bytes() as f64);
        if d > 0.0 { d / (d + b) } else { 0.0 }
    }

    /// The dispersion that a loss at equal rates behind such a ring means: the inverse of
    /// [`at_equal_rates`](Self::at_equal_rates). `lost` is below 1.
    pub fn dispersion(lost: f64, buffer: ByteSize) -> ByteSize {
        let lost = lost.clamp(0.0, 1.0);
        ByteSize::from_bytes((lost / (1.0 - lost) * buffer.as_bytes() as f64).round() as u64)
    }

    /// The flow to a child over a leg that alone would give `own` bit/s, from a ring to which `up` flows.
    pub fn behind(&self, ring: ByteSize, up: ArrivingFlow, own: f64) -> ArrivingFlow {
        let lost = self.at_equal_rates(ring);
        let width = up.width.min(own);
        let above = if self.shape == Shape::Walk { up.rate } else { up.width };
        let alike = likeness((above - own).abs(), lost * above.min(own));
        let hops = if own < up.width { 1.0 + alike * up.hops } else { up.hops + alike };
        let rate = match self.shape {
            Shape::Walk => up.rate.min(own) * (1.0 - lost * alike),
            Shape::Exponential => own.min(up.rate * (1.0 - lost * alike)),
            Shape::Power => {
                let left = (up.hops / (up.hops + 1.0)).powf(-(1.0 - lost).log2());
                own.min(up.rate * (1.0 - (1.0 - left) * alike))
            }
        };
        ArrivingFlow { rate: rate.max(0.0), width, hops }
    }
}

/// The part of the loss at equal rates that remains if the rates differ by `apart`, where `scale` is lost at equal
/// rates: `x/(eˣ−1)`, 1 at x = 0.
fn likeness(apart: f64, scale: f64) -> f64 {
    let x = apart / scale;
    match x {
        // 0/0, or equal rates.
        x if x.is_nan() || x < 1e-9 => 1.0,
        // e^x is near infinite.
        x if x > 700.0 => 0.0,
        x => x / x.exp_m1(),
    }
}

/// A straight line fitted to logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineFit {
    /// T₁, the rate at depth 1.
    pub first: Rate,
    /// ε, the share lost at the second hop; negative if it gained.
    pub lost: f64,
    /// The share of ln T's variance that the line explains; 1 without variance.
    pub r_squared: f64,
}

impl LineFit {
    /// The line through measured (depth, throughput), depth from 1 up, by least squares: against the depth
    /// ([`Shape::Exponential`], and [`Shape::Walk`] as its first hops) or its logarithm ([`Shape::Power`]).
    ///
    /// Throughputs of zero are left out. `None` with fewer than two depths.
    pub fn of(shape: Shape, measured: &[(u32, Rate)]) -> Option<Self> {
        let power = shape == Shape::Power;
        let x = |depth: u32| if power { f64::from(depth).log2() } else { f64::from(depth) - 1.0 };
        let counts = measured.iter().filter(|(depth, rate)| *depth > 0 && *rate > Rate::ZERO);
        let points: Vec<(f64, f64)> =
            counts.map(|(depth, rate)| (x(*depth), (rate.as_bps() as f64).ln())).collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
        let sum = |of: &dyn Fn(f64, f64) -> f64| -> f64 {
            points.iter().map(|(x, y)| of(x - mx, y - my)).sum()
        };
        let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
        if points.is_empty() || xx <= 0.0 {
            return None;
        }
        let slope = xy / xx;
        let first = Rate::from_bps((my - slope * mx).exp().round() as u64);
        let r_squared = if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 };
        Some(Self { first, lost: -slope.exp_m1(), r_squared })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw;
    use proptest::prelude::*;
    use rand_core::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// 3,000 packets of 512 B.
    const RING: ByteSize = ByteSize::from_bytes(3000 * 512);

    fn figure_15() -> [(u32, Rate); 3] {
        [(1, 4.27), (2, 3.92), (3, 3.62)].map(|(depth, mbps)| (depth, Rate::from_mbps(mbps)))
    }

    fn chain(model: &ChainLoss, ring: ByteSize, depth: usize) -> Vec<f64> {
        let hop = |up: &ArrivingFlow| Some(model.behind(ring, *up, 1.0));
        std::iter::successors(Some(ArrivingFlow::first(1.0)), hop)
            .take(depth)
            .map(|f| f.rate)
            .collect()
    }

    /// §VI-D: "the performance degradation on adding each additional downstream connection".
    #[test]
    fn the_fit_of_figure_15_is_within_a_hundredth() {
        let fit = LineFit::of(Shape::Exponential, &figure_15()).unwrap();
        assert!((0.075..0.085).contains(&fit.lost) && fit.r_squared > 0.999, "{fit:?}");
        let dispersion = ChainLoss::dispersion(fit.lost, RING);
        let model = ChainLoss { shape: Shape::Exponential, dispersion };
        for (share, (_, rate)) in chain(&model, RING, 3).iter().zip(figure_15()) {
            let predicted = share * fit.first.as_mbps();
            assert!((predicted / rate.as_mbps() - 1.0).abs() < 0.01, "{predicted} for {rate}");
        }
        let off = ChainLoss::FIGURE_15.dispersion.as_bytes().abs_diff(dispersion.as_bytes());
        assert!(off < 500, "the constant is the fit's: {dispersion}");
        assert_eq!(ChainLoss::FIGURE_15.shape, model.shape);
        let power = LineFit::of(Shape::Power, &figure_15()).unwrap();
        assert!(power.r_squared < fit.r_squared, "{power:?}");
    }

    #[test]
    fn each_shape_falls_as_its_name_says() {
        let of = |shape| ChainLoss { shape, dispersion: ChainLoss::dispersion(0.08, RING) };
        for (depth, rate) in (1..).zip(chain(&of(Shape::Exponential), RING, 20)) {
            assert!((rate - 0.92_f64.powi(depth - 1)).abs() < 1e-6, "{depth}: {rate}");
        }
        for (depth, rate) in (1..).zip(chain(&of(Shape::Power), RING, 20)) {
            let exponent = 0.92_f64.log2();
            assert!((rate - f64::from(depth).powf(exponent)).abs() < 1e-6, "{depth}: {rate}");
        }
        let walk = chain(&of(Shape::Walk), RING, 20);
        let lost: Vec<f64> = walk.windows(2).map(|pair| 1.0 - pair[1] / pair[0]).collect();
        assert!((lost[0] - 0.08).abs() < 1e-6 && lost.windows(2).all(|pair| pair[1] < pair[0]));
    }

    #[test]
    fn fits_recover_the_parameters() {
        let of = |shape: fn(f64) -> f64| -> Vec<(u32, Rate)> {
            (1..=200).map(|k| (k, Rate::from_mbps(1000.0 * shape(k.into())))).collect()
        };
        let exponential = of(|k| 0.99_f64.powf(k - 1.0));
        let power = of(|k| k.powf(-0.3));
        let fit = |shape, points: &[_]| LineFit::of(shape, points).unwrap();
        assert!((fit(Shape::Exponential, &exponential).lost - 0.01).abs() < 1e-6);
        assert!((fit(Shape::Power, &power).lost - (1.0 - 2_f64.powf(-0.3))).abs() < 1e-6);
        assert!(fit(Shape::Power, &exponential).r_squared < 0.95);
        assert!(fit(Shape::Exponential, &power).r_squared < 0.95);
        assert_eq!(LineFit::of(Shape::Power, &exponential[..1]), None);
    }

    /// Simulates a ring between two jittering connections, in steps, against the formula of the walk.
    #[test]
    fn a_simulated_ring_starves_as_the_formula_says() {
        let (mean, deviation, ring) = (100.0, 100.0, 6000.0);
        // D·µ = variance of a step; both connections alike.
        let dispersion = deviation * deviation / mean;
        let seed = 7;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        // Uniform with this deviation.
        let mut jitter = || (draw::unit(&mut random) - 0.5) * 12_f64.sqrt() * deviation;
        for up in [0.97, 1.0, 1.03] {
            let (mut inside, mut taken, steps) = (0.0_f64, 0.0, 2_000_000);
            for _ in 0..steps {
                inside = (inside + mean * up + jitter()).min(ring);
                let wanted = mean + jitter();
                // At most what the ring holds; a negative wish puts data back.
                let took = wanted.min(inside);
                taken += took;
                inside = (inside - took).min(ring);
            }
            let model = ChainLoss {
                shape: Shape::Walk,
                dispersion: ByteSize::from_bytes((dispersion * ring / (ring - dispersion)) as u64),
            };
            let ring = ByteSize::from_bytes(ring as u64);
            let says = model.behind(ring, ArrivingFlow::first(mean * up), mean).rate;
            let got = taken / f64::from(steps);
            assert!((got - says).abs() < 0.004 * mean, "seed {seed}, {up}: {got}, not {says}");
        }
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        prop::sample::select(vec![Shape::Exponential, Shape::Power, Shape::Walk])
    }

    proptest! {
        #[test]
        fn a_chain_gives_at_most_its_slowest_hop_and_all_of_it_with_huge_rings(
            shape in shapes(), lost in 0.0..0.9_f64,
            legs in prop::collection::vec(1e3..1e9_f64, 1..20),
        ) {
            let model = ChainLoss { shape, dispersion: ChainLoss::dispersion(lost, RING) };
            let huge = ByteSize::from_bytes(1 << 60);
            let (mut small, mut large) = (ArrivingFlow::first(legs[0]), ArrivingFlow::first(legs[0]));
            let mut slowest = legs[0];
            for leg in &legs[1..] {
                slowest = slowest.min(*leg);
                let next = model.behind(RING, small, *leg);
                prop_assert!(next.rate <= small.rate.min(*leg) + 1e-6);
                prop_assert!(next.rate >= 0.0 && next.hops >= 1.0 && next.width == slowest);
                (small, large) = (next, model.behind(huge, large, *leg));
                prop_assert!((large.rate / slowest - 1.0).abs() < 1e-6);
            }
        }

        #[test]
        fn larger_rings_lose_less(
            shape in shapes(), up in 1.0..100.0_f64, own in 1.0..100.0_f64, kb in 1_u64..2000, more in 1_u64..2000,
        ) {
            let model = ChainLoss { shape, dispersion: ByteSize::from_bytes(100_000) };
            let rate = |kb: u64| model.behind(ByteSize::from_bytes(kb * 1000), ArrivingFlow::first(up), own).rate;
            prop_assert!(rate(kb + more) >= rate(kb) - 1e-9);
        }

        #[test]
        fn nothing_is_lost_without_dispersion(up in 0.0..1e9_f64, own in 0.0..1e9_f64) {
            let flow = ChainLoss::NONE.behind(ByteSize::from_bytes(0), ArrivingFlow::first(up), own);
            prop_assert_eq!(flow.rate, up.min(own));
        }
    }
}
