//! Which probes of a train may carry riders (§4.2.2).
//!
//! Riders go at the rate of the probes that carry them. Towards the end of a fast train the queue on the way is full,
//! and what is lost there is application data.

use super::FlowState;

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
    /// As many as the riding TCP flow would have had under way: what its congestion window holds, and fewer after its
    /// losses. Fast trains alone are cut: up to `harmless` bit/s riders go no faster than by themselves.
    Flow {
        /// Trains below this rate may carry riders all along.
        harmless: f64,
    },
}

/// A probe that might carry riders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ride {
    /// Its place in the train, from 0.
    pub place: usize,
    /// How many probes the train has.
    pub of: usize,
    /// Its padding, bytes.
    pub padding: usize,
    /// The train's rate, bit/s.
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
                ride.rate <= *harmless || ride.place < flow.window.div_ceil(ride.padding.max(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(regulator: Regulator, rate: f64, window: usize) -> usize {
        let flow = FlowState { window };
        let ride = |place| Ride { place, of: 100, padding: 500, rate };
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
        assert_eq!(allowed(flow, 9e6, 10_000), 20);
        assert_eq!(allowed(flow, 9e6, 0), 0);
    }
}
