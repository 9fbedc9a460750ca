//! Which probes of a train may carry riders (§4.2.2).
//!
//! Riders go at the rate of the probes that carry them. Towards the end of a fast train the queue on the way is full,
//! and what is lost there is application data.

use super::FlowState;
use std::time::Duration;

/// A rule for whole trains; a probe's own flag counts besides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Regulator {
    /// Each probe that is allowed to.
    #[default]
    All,
    /// None: as without MGRP.
    None,
    /// The first part of each train, from 0 to 1.
    Share(f64),
    /// So many probes in a row at most, from the train's beginning.
    First(usize),
    /// As much as the riding TCP flows would have sent meanwhile by themselves: what their congestion windows hold, and besides
    /// what they send as time goes on; half of both after their losses. Fast trains alone are cut: up to `harmless` bit/s riders go no faster than by themselves.
    Flow {
        /// Trains below this rate may carry riders all along.
        harmless: f64,
    },
}

/// A probe that might carry riders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ride {
    /// Its place in the train, or in its stretch after a pause, from 0.
    pub place: usize,
    /// How many probes that has.
    pub of: usize,
    /// Its padding, bytes.
    pub padding: usize,
    /// When it goes, from the beginning of that.
    pub after: Duration,
    /// Its rate, bit/s.
    pub rate: f64,
}

impl Regulator {
    /// Whether it may.
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
    fn each_allows_what_it_says() {
        assert_eq!(allowed(Regulator::All, 1e6, 0), 100);
        assert_eq!(allowed(Regulator::None, 1e6, 0), 0);
        assert_eq!(allowed(Regulator::Share(0.5), 1e6, 0), 50);
        assert_eq!(allowed(Regulator::First(7), 1e6, 0), 7);
        let flow = Regulator::Flow { harmless: 2e6 };
        assert_eq!(allowed(flow, 1e6, 0), 100);
        // As fast as the flow itself goes, 4 Mbit/s.
        assert_eq!((allowed(flow, 3.9e6, 1), allowed(flow, 4.1e6, 1)), (100, 1));
        // At twice that half of each probe is beyond it: 10,000 bytes are 40 halves.
        assert_eq!(allowed(flow, 8e6, 10_000), 40);
        assert_eq!(allowed(flow, 8e6, 0), 0);
        assert_eq!(allowed(Regulator::Flow { harmless: 0.0 }, 1e12, usize::MAX), 100);
    }
}
