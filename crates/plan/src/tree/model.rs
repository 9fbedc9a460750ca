//! TCP's throughput over a chain of connections: ROMA §V, Eq. (1) to (3).
//!
//! Differs in form: the paper leaves the packet size out of its shorthand and of Eq. (2) and (3), which then count
//! packets; here all are in bits a second.

use std::time::Duration;
use thalweg_units::{ByteSize, Rate};

/// The conditions of a TCP connection on one overlay hop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hop {
    pub rtt: Duration,
    /// The share of packets at which a loss event begins, 0 to 1.
    pub loss: f64,
}

impl Hop {
    /// Creates a hop of which only the throughput was measured; its loss rate follows by Eq. (1), as in §VI-B.
    ///
    /// `None` as for [`Formula::loss`].
    pub fn inferred(packet: ByteSize, rtt: Duration, rate: Rate) -> Option<Self> {
        Some(Self { rtt, loss: Formula::Full.loss(packet, rtt, rate)? })
    }
}

/// The formula for a connection's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Formula {
    /// Eq. (1), with timeouts (Padhye et al., the paper's reference 12, with a retransmission timeout of four round
    /// trips).
    Full,
    /// §V-A's shorthand, `√1.5 / (rtt·√p)`: without timeouts.
    Simple,
}

impl Formula {
    /// Packets a round trip at this loss rate; infinite without loss.
    fn window(self, loss: f64) -> f64 {
        let p = loss.clamp(0.0, 1.0);
        let halvings = (2.0 * p / 3.0).sqrt();
        match self {
            Self::Simple => 1.0 / halvings,
            Self::Full => {
                let timeouts = 12.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p);
                1.0 / (halvings + timeouts)
            }
        }
    }

    /// The rate of one connection: Eq. (1) or its shorthand.
    ///
    /// Without loss or round trip, nothing bounds it, and it is the largest [`Rate`]. Loss is clamped to 0..1.
    pub fn throughput(self, packet: ByteSize, hop: Hop) -> Rate {
        let bits = packet.as_bits() as f64 * self.window(hop.loss) / hop.rtt.as_secs_f64();
        // `as` saturates; 0/0 (no packet) is 0.
        Rate::from_bps(bits.round() as u64)
    }

    /// The loss rate that follows from a measured throughput and round trip (§VI-B): the inverse of
    /// [`throughput`](Self::throughput).
    ///
    /// `None` if no loss rate from 10⁻¹⁸ to 1 gives this throughput. Accurate to 10⁻⁹ of the loss rate, except for the
    /// rounding of rates to whole bits.
    pub fn loss(self, packet: ByteSize, rtt: Duration, rate: Rate) -> Option<f64> {
        let wanted = rate.as_bps() as f64 * rtt.as_secs_f64() / packet.as_bits() as f64;
        // ln p; the window falls as p rises.
        let (mut low, mut high) = (1e-18_f64.ln(), 0.0_f64);
        let inside = wanted <= self.window(low.exp()) && wanted >= self.window(1.0);
        if !inside {
            return None;
        }
        for _ in 0..64 {
            let middle = low.midpoint(high);
            if self.window(middle.exp()) >= wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        Some(low.midpoint(high).exp())
    }

    /// The rate of a chain of loosely coupled connections: that of the slowest hop, Eq. (2).
    ///
    /// Nothing bounds a chain without hops.
    pub fn chain(self, packet: ByteSize, hops: &[Hop]) -> Rate {
        let rates = hops.iter().map(|hop| self.throughput(packet, *hop));
        rates.min().unwrap_or(Rate::from_bps(u64::MAX))
    }

    /// The rate of one connection over the whole path, Eq. (3): with the sum of the round trips, and the loss rate `1 −
    /// Π(1 − p)`. It underestimates a chain (§V-B).
    pub fn aggregate(self, packet: ByteSize, hops: &[Hop]) -> Rate {
        self.throughput(packet, joined(hops))
    }
}

/// All hops as a single one: round trips add up, and losses count as independent.
pub fn joined(hops: &[Hop]) -> Hop {
    let rtt = hops.iter().map(|hop| hop.rtt).sum();
    // By ln(1 − p), so that small losses do not vanish.
    let survives: f64 = hops.iter().map(|hop| (-hop.loss.clamp(0.0, 1.0)).ln_1p()).sum();
    Hop { rtt, loss: -survives.exp_m1() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hop(ms: f64, loss: f64) -> Hop {
        Hop { rtt: Duration::from_secs_f64(ms / 1e3), loss }
    }

    /// The labels of Fig. 6 are missing in the text. These values give its three numbers to the digit: 1,500-byte
    /// packets, 10 ms each way on both hops, p = 0.0005 and 0.001, Mbit = 2²⁰ bits.
    #[test]
    fn figure_6_has_9_0_directly_and_22_2_by_b() {
        let packet = ByteSize::from_bytes(1500);
        let hops = [hop(20.0, 0.0005), hop(20.0, 0.001)];
        let mbit = |rate: Rate| (rate.as_bps() as f64 / f64::from(1 << 20) * 10.0).round() / 10.0;
        let simple = Formula::Simple;
        assert_eq!(mbit(simple.throughput(packet, joined(&hops))), 9.0, "direct");
        assert_eq!(mbit(simple.chain(packet, &hops)), 22.2, "by B, Eq. (2)");
        assert_eq!(mbit(simple.throughput(packet, hops[1])), 22.2, "B to C alone");
        assert_eq!(mbit(simple.aggregate(packet, &hops)), 9.0, "by B, Eq. (3)");
    }

    /// Fig. 11: GT to UIUC gives 37.2 Mbit/s and BU to GT 53.9 (Table 1); the round trips are 42.2 ms and the losses
    /// 0.0344 % together. How the round trip divides is not known; with §VI's 1 KB packets there is a division whose
    /// losses, by the inverse of Eq. (1), sum up to the paper's.
    #[test]
    fn figure_11_s_losses_follow_from_rates_and_round_trips() {
        let packet = ByteSize::from_bytes(1024);
        let hops = |first: f64| {
            [(first, 53.9), (42.2 - first, 37.2)].map(|(ms, mbps)| {
                let rtt = Duration::from_secs_f64(ms / 1e3);
                hop(ms, Formula::Full.loss(packet, rtt, Rate::from_mbps(mbps)).unwrap())
            })
        };
        let percent = |first: f64| 100.0 * joined(&hops(first)).loss;
        let tenths: Vec<f64> = (50..350).map(|at| f64::from(at) / 10.0).collect();
        let off = |first: &f64| (percent(*first) - 0.0344).abs();
        let first = tenths.into_iter().min_by(|a, b| off(a).total_cmp(&off(b))).unwrap();
        assert!(off(&first) < 0.0005, "{first} ms: {} %", percent(first));
        let chain = Formula::Full.chain(packet, &hops(first)).as_mbps();
        assert!((chain - 37.2).abs() < 0.01, "{chain}");
        let aggregate = Formula::Full.aggregate(packet, &hops(first)).as_mbps();
        assert!(aggregate < 0.4 * 37.2, "Eq. (3) underestimates: {aggregate}");
    }

    /// By hand: p = 0.01, 100 ms, 1,460 B.
    #[test]
    fn equation_1_agrees_with_a_calculation_by_hand() {
        // √(0.02/3) = 0.0816497; 12·√0.00375·0.01·1.0032 = 0.0073719; 11680/(0.1·0.0890216).
        let rate = Formula::Full.throughput(ByteSize::from_bytes(1460), hop(100.0, 0.01));
        assert!((rate.as_mbps() - 1.312_041).abs() < 1e-4, "{rate}");
    }

    #[test]
    fn unbounded_throughput_is_the_largest_rate() {
        let packet = ByteSize::from_bytes(1460);
        let most = Rate::from_bps(u64::MAX);
        assert_eq!(Formula::Full.throughput(packet, hop(10.0, 0.0)), most);
        assert_eq!(Formula::Full.chain(packet, &[]), most);
        let rtt = Duration::from_millis(10);
        assert_eq!(Formula::Full.loss(packet, rtt, Rate::ZERO), None);
        assert_eq!(Formula::Full.loss(packet, rtt, most), None);
    }

    proptest! {
        #[test]
        fn the_inverse_finds_the_loss(p in 1e-8..0.9_f64, ms in 0.1..900.0_f64, full: bool) {
            let formula = if full { Formula::Full } else { Formula::Simple };
            // Large packets, so that the rounding to whole bits does not matter.
            let packet = ByteSize::from_bytes(1 << 30);
            let rate = formula.throughput(packet, hop(ms, p));
            let found = formula.loss(packet, hop(ms, p).rtt, rate).unwrap();
            prop_assert!((found / p - 1.0).abs() < 1e-4, "{found} for {p}");
        }

        #[test]
        fn a_chain_is_never_slower_than_one_connection_over_all(
            hops in prop::collection::vec((1.0..300.0_f64, 1e-6..0.3_f64), 1..6),
        ) {
            let hops: Vec<Hop> = hops.into_iter().map(|(ms, p)| hop(ms, p)).collect();
            let packet = ByteSize::from_bytes(1460);
            for formula in [Formula::Full, Formula::Simple] {
                let (chain, one) = (formula.chain(packet, &hops), formula.aggregate(packet, &hops));
                prop_assert!(one.as_bps() <= chain.as_bps() + 1, "{one} > {chain}");
            }
        }
    }
}
