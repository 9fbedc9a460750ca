//! A path and its ends, as tools are told of them: each tool is made here, for whoever measures.

use super::{Fits, Pace, Pathchirp, PathchirpSettings, Pathload, PathloadSettings};
use crate::train::Calibration;
use std::time::Duration;

/// A path, from whoever sends to whoever receives.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// What the sending host can do.
    pub sender: Calibration,
    /// What the receiving one can.
    pub receiver: Calibration,
    /// The round trip, at the most.
    pub rtt: Duration,
    /// The longest probe that passes: the MTU without IP's and UDP's headers, bytes.
    pub largest: u16,
    /// What those add to each probe, bytes ([`overhead`](crate::train::overhead)).
    pub overhead: u32,
}

impl Ends {
    /// Both as one: rates are the sender's matter, and of batches the slower one's. What it keeps the sender's
    /// [`Calibration::check`] lets pass.
    pub fn host(&self) -> Calibration {
        let receive_latency = self.sender.receive_latency.max(self.receiver.receive_latency);
        Calibration { receive_latency, ..self.sender }
    }

    /// Pathload for it; `may_carry`: whether packets may ride in its streams.
    pub fn pathload(&self, pace: Pace, may_carry: bool) -> Pathload {
        let Self { rtt, largest, overhead, .. } = *self;
        let host = self.host();
        Pathload::new(PathloadSettings { pace, rtt, largest, overhead, host, may_carry })
    }

    /// Whether so many bit/s are free; `may_carry`: whether packets may ride in its streams.
    pub fn fits(&self, rate: f64, may_carry: bool) -> Fits {
        let Self { rtt, largest, overhead, .. } = *self;
        let (pace, host) = (Pace::Fast, self.host());
        Fits::new(PathloadSettings { pace, rtt, largest, overhead, host, may_carry }, rate)
    }

    /// Pathchirp for it; `may_carry`: whether packets may ride in its chirps.
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
