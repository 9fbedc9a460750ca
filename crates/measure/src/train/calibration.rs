//! What this host can send and receive truthfully, as measured at start.

use super::{Train, rate_of};
use std::time::Duration;
use thalweg_units::Rate;
use thiserror::Error;

/// No gap below this is asked for, whatever the host (pathload's `min gap`).
pub const SHORTEST_GAP: Duration = Duration::from_micros(7);

/// What a calibration found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// The median time that sending one probe takes.
    pub send_latency: Duration,
    /// The median time that receiving one probe takes.
    pub receive_latency: Duration,
    /// How far gaps are off what was asked for: the median, and 99 of 100 are nearer than this.
    pub gap_error: [Duration; 2],
    /// The highest rate at which gaps are what they are said to be.
    pub honest: Rate,
    /// Whether the host stood still long enough to be believed; without it no train is sent.
    pub is_valid: bool,
}

/// A train that this host cannot send truthfully.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Dishonest {
    /// The host was too busy to be calibrated.
    #[error(
        "this host is too busy to time probes: its calibration is not valid; try again when it is calm"
    )]
    Invalid,
    /// A probe would follow too soon.
    #[error(
        "probe {at} is to follow after {} µs; this host keeps gaps of {} µs and more",
        gap.as_micros(), least.as_micros()
    )]
    Gap {
        /// Its place.
        at: usize,
        /// As asked for.
        gap: Duration,
        /// The shortest.
        least: Duration,
    },
    /// Probes would come too fast.
    #[error("the train asks for {asked}; this host sends truthfully up to {honest}")]
    Rate {
        /// As asked for.
        asked: Rate,
        /// The highest.
        honest: Rate,
    },
}

impl Calibration {
    /// The shortest gap: twice what sending or receiving takes (pathload).
    pub fn shortest_gap(&self) -> Duration {
        SHORTEST_GAP.max(2 * self.send_latency.max(self.receive_latency))
    }

    /// The highest rate with probes of `size`.
    pub fn highest(&self, size: u16) -> Rate {
        rate_of(size, self.shortest_gap()).min(self.honest)
    }

    /// Whether a train can be sent as it says. Gaps of zero say "as fast as it goes", and always can.
    ///
    /// # Errors
    /// [`Dishonest`].
    pub fn check(&self, train: &Train) -> Result<(), Dishonest> {
        if !self.is_valid {
            return Err(Dishonest::Invalid);
        }
        let least = self.shortest_gap();
        let probes = train.probes().iter().enumerate().skip(1);
        for (at, probe) in probes.filter(|(_, probe)| !probe.gap.is_zero()) {
            if probe.gap < least {
                return Err(Dishonest::Gap { at, gap: probe.gap, least });
            }
            let asked = rate_of(probe.size, probe.gap);
            if asked > self.honest {
                return Err(Dishonest::Rate { asked, honest: self.honest });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Probe, *};

    const US: Duration = Duration::from_micros(1);

    fn host() -> Calibration {
        Calibration {
            send_latency: 5 * US,
            receive_latency: 10 * US,
            gap_error: [US, 20 * US],
            honest: Rate::from_mbps(400.0),
            is_valid: true,
        }
    }

    fn train(size: u16, gap: Duration) -> Train {
        Train::uniform(Probe { size, header: 20, gap, may_carry: false }, 10).unwrap()
    }

    #[test]
    fn what_the_host_cannot_do_is_refused_with_the_reason() {
        assert_eq!(host().check(&train(1000, 100 * US)), Ok(()));
        assert_eq!(host().check(&train(1000, Duration::ZERO)), Ok(()), "back to back");
        let gap = host().check(&train(200, 15 * US));
        assert_eq!(gap, Err(Dishonest::Gap { at: 1, gap: 15 * US, least: 20 * US }));
        assert!(matches!(host().check(&train(1472, 21 * US)), Err(Dishonest::Rate { .. })));
        let busy = Calibration { is_valid: false, ..host() };
        assert_eq!(busy.check(&train(1000, 100 * US)), Err(Dishonest::Invalid));
        assert_eq!(host().highest(1472), Rate::from_mbps(400.0));
    }
}
