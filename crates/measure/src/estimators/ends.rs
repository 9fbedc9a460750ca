//! The ends of a path as tools need to know them, and the constructors of tools for it.

use super::{Pace, Pathchirp, PathchirpSettings, Pathload, PathloadSettings, RateTest};
use crate::train::Calibration;
use std::time::Duration;

/// A path from a sending to a receiving host.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// The calibration of the sending host.
    pub sender: Calibration,
    /// The calibration of the receiving host.
    pub receiver: Calibration,
    /// An upper limit of the round trip.
    pub rtt: Duration,
    /// The largest probe that passes: the MTU without IP and UDP headers, bytes.
    pub largest: u16,
    /// IP and UDP header bytes per probe ([`overhead`](crate::train::overhead)).
    pub overhead: u32,
}

impl Ends {
    /// The calibration of both hosts together: the sender's, with the slower receive latency of the two, which matters
    /// for batches. The sender's [`Calibration::check`] accepts trains that keep to it.
    pub fn host(&self) -> Calibration {
        let receive_latency = self.sender.receive_latency.max(self.receiver.receive_latency);
        Calibration { receive_latency, ..self.sender }
    }

    /// Creates pathload for this path; `may_carry`: whether packets may ride in its streams.
    pub fn pathload(&self, pace: Pace, may_carry: bool) -> Pathload {
        let Self { rtt, largest, overhead, .. } = *self;
        let host = self.host();
        Pathload::new(PathloadSettings { pace, rtt, largest, overhead, host, may_carry })
    }

    /// Creates a test whether `rate` bit/s are available; `may_carry`: whether packets may ride in its streams.
    pub fn rate_test(&self, rate: f64, may_carry: bool) -> RateTest {
        let Self { rtt, largest, overhead, .. } = *self;
        let (pace, host) = (Pace::Fast, self.host());
        RateTest::new(PathloadSettings { pace, rtt, largest, overhead, host, may_carry }, rate)
    }

    /// Creates pathchirp for this path; `may_carry`: whether packets may ride in its chirps.
    pub fn pathchirp(&self, may_carry: bool) -> Pathchirp {
        let of = PathchirpSettings::default();
        let (host, size, overhead) = (self.host(), of.size.min(self.largest), self.overhead);
        let most = host.highest(size, overhead).as_bps() as f64;
        let receive_latency = host.receive_latency;
        Pathchirp::new(PathchirpSettings { size, overhead, most, receive_latency, may_carry, ..of })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::*, *};
    use crate::train::OVERHEAD;
    use thalweg_units::Rate;

    #[test]
    fn tools_ask_for_no_more_than_both_hosts_can_do() {
        let us = Duration::from_micros;
        let calm = |latency, mbps| Calibration {
            send_latency: us(3),
            receive_latency: us(latency),
            gap_error: [us(1), us(9)],
            honest: Rate::from_mbps(mbps),
            is_valid: true,
        };
        let (sender, receiver, overhead) = (calm(3, 50.0), calm(90, 900.0), OVERHEAD);
        let ends = Ends { sender, receiver, rtt: us(9), largest: 548, overhead };
        assert_eq!(ends.host().receive_latency, us(90));
        let back = Ends { sender: ends.receiver, receiver: ends.sender, ..ends };
        assert_eq!(back.host().shortest_gap(), back.sender.shortest_gap());
        let Step::Send { train, .. } = ends.pathchirp(false).next() else { panic!("no chirp") };
        assert!(train.probes().iter().all(|probe| probe.size == 548 && !probe.may_carry));
        assert_eq!(ends.host().check(&train), Ok(()));
        let Step::Send { train, .. } = ends.pathload(Pace::Fast, true).next() else {
            panic!("no burst")
        };
        assert!(train.probes().iter().all(|probe| probe.size == 548 && !probe.may_carry));
    }
}
