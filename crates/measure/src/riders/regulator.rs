//! Which probes of a train may carry riders (§4.2.2).
//!
//! Riders travel at the rate of the probes that carry them. Towards the end of a fast train the queue on the path is
//! full, and what is lost then is application data.

use super::FlowState;
use std::time::Duration;

/// A rule for whole trains, in addition to the flag of each probe.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Regulator {
    /// Each probe whose flag allows it.
    #[default]
    All,
    /// No probe: as without MGRP.
    None,
    /// The probes in the first part of each train, from 0 to 1.
    Share(f64),
    /// At most this many probes from the train's beginning.
    First(usize),
    /// As much as the riding TCP flows would have sent by themselves in the meantime: the content of their congestion
    /// windows plus what they send over time; half of both after they lost packets. Only fast trains are limited: up to
    /// `harmless` bit/s riders go no faster than by themselves.
    Flow {
        /// Trains up to this rate may carry riders in all probes, bit/s.
        harmless: f64,
    },
}

/// A probe that might carry riders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ride {
    /// The place of the probe in the train, or in its stretch after a pause, from 0.
    pub place: usize,
    /// The number of probes in the train or stretch.
    pub of: usize,
    /// Its padding, bytes.
    pub padding: usize,
    /// When it leaves, from the beginning of the train or stretch.
    pub after: Duration,
    /// The rate of the train or stretch, bit/s.
    pub rate: f64,
}

impl Regulator {
    /// Whether the probe may carry riders.
    pub fn allows(&self, ride: Ride, flow: &FlowState) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Share(share) => (ride.place as f64) < share * ride.of as f64,
            Self::First(count) => ride.place < *count,
            Self::Flow { harmless } => {
                let before = ride.place as f64 * ride.padding as f64;
                let sent = flow.window as f64 + flow.rate * ride.after.as_secs_f64();
                ride.rate <= *harmless || before < sent
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(regulator: Regulator, rate: f64, window: usize) -> usize {
        let flow = FlowState { window, rate: 500e3 };
        let after = |place: usize| Duration::from_secs_f64(4000.0 / rate * place as f64);
        let ride = |place| Ride { place, of: 100, padding: 500, after: after(place), rate };
        (0..100).filter(|place| regulator.allows(ride(*place), &flow)).count()
    }

    #[test]
    fn each_regulator_allows_its_part_of_a_train() {
        assert_eq!(allowed(Regulator::All, 1e6, 0), 100);
        assert_eq!(allowed(Regulator::None, 1e6, 0), 0);
        assert_eq!(allowed(Regulator::Share(0.5), 1e6, 0), 50);
        assert_eq!(allowed(Regulator::First(7), 1e6, 0), 7);
        let flow = Regulator::Flow { harmless: 2e6 };
        assert_eq!(allowed(flow, 1e6, 0), 100);
        // At the flow's own rate, 4 Mbit/s.
        assert_eq!((allowed(flow, 3.9e6, 1), allowed(flow, 4.1e6, 1)), (100, 1));
        // At twice that rate, half of each probe exceeds the flow's rate: 10,000 bytes are 40 halves.
        assert_eq!(allowed(flow, 8e6, 10_000), 40);
        assert_eq!(allowed(flow, 8e6, 0), 0);
        assert_eq!(allowed(Regulator::Flow { harmless: 0.0 }, 1e12, usize::MAX), 100);
    }
}
