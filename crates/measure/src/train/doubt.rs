//! Whether a result can be trusted: compares what the hosts did with what was requested.

use super::{CALM, Calibration, Flight, KEPT, Train};
use std::time::Duration;
use thiserror::Error;

/// An end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum End {
    #[error("sending")]
    Sender,
    #[error("receiving")]
    Receiver,
}

/// Why a result is not valid although a tool gave one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Doubt {
    /// A host was not calm during calibration.
    #[error(
        "the {end} host was too busy to time probes: 1 % of its gaps were off by {} µs or more",
        .off.as_micros()
    )]
    Busy {
        end: End,
        /// The 99th percentile of its gap errors.
        off: Duration,
    },
    /// More than half of the gaps were off by a tenth or more.
    #[error("{late} of {timed} gaps were off by a tenth or more")]
    Late {
        /// The number of gaps that were off.
        late: u64,
        /// The number of requested gaps.
        timed: u64,
    },
    /// More than 1 % of the gaps were far off: the sending host paused.
    #[error("{late} of {timed} gaps were off by {} µs or more: the sending host paused", CALM.as_micros())]
    Paused {
        /// The number of gaps that were off.
        late: u64,
        /// The number of requested gaps.
        timed: u64,
    },
    /// Probes could not be sent; holds their number.
    #[error("{0} probes could not be sent")]
    Unsent(u64),
    /// The receiving host, not the path, dropped datagrams; holds their number.
    #[error("the receiving host dropped {0} datagrams")]
    Dropped(u64),
    /// Losses were random and not caused by a full queue, so the beginning and end of an episode cannot be seen.
    #[error(
        "packets were lost without queueing: only losses of probes are counted, so there may have \
         been more losses between them"
    )]
    Queueless,
}

impl Doubt {
    /// The doubt that a host's calibration raises; `None` if the host was calm.
    pub fn of_host(end: End, host: &Calibration) -> Option<Self> {
        (!host.is_valid).then_some(Self::Busy { end, off: host.gap_error[1] })
    }
}

/// How well the gaps of trains were kept.
///
/// Applies the two criteria of the calibration: half of the gaps within a tenth of the request, and 99 of 100 within
/// half a millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Punctuality {
    timed: u64,
    late: u64,
    paused: u64,
    unsent: u64,
    dropped: u64,
}

impl Punctuality {
    /// Adds the timing of a sent train.
    pub fn note(&mut self, train: &Train, flight: &Flight) {
        let pairs = flight.sent.windows(2).zip(train.probes().iter().skip(1));
        for (pair, probe) in pairs.filter(|(_, probe)| !probe.gap.is_zero()) {
            let [Some(before), Some(at)] = *pair else { continue };
            let off = at.since(before).abs_diff(probe.gap);
            self.timed += 1;
            self.late += u64::from(off.as_secs_f64() >= KEPT * probe.gap.as_secs_f64());
            self.paused += u64::from(off >= CALM);
        }
        self.unsent += flight.sent.iter().filter(|at| at.is_none()).count() as u64;
        self.dropped += flight.dropped;
    }

    /// The doubts that these trains raise.
    pub fn doubts(&self) -> Vec<Doubt> {
        let Self { timed, late, paused, unsent, dropped } = *self;
        let mut doubts = Vec::new();
        doubts.extend((2 * late > timed).then_some(Doubt::Late { late, timed }));
        doubts.extend((100 * paused > timed).then_some(Doubt::Paused { late: paused, timed }));
        doubts.extend((unsent > 0).then_some(Doubt::Unsent(unsent)));
        doubts.extend((dropped > 0).then_some(Doubt::Dropped(dropped)));
        doubts
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Probe, *};
    use thalweg_units::{Rate, Time};

    const GAP: Duration = Duration::from_millis(1);

    /// The punctuality of a train of 101 probes with these gaps, µs.
    fn punctuality_of(gap: impl Fn(u64) -> u64) -> Punctuality {
        let probe = Probe { size: 500, header: 0, gap: GAP, may_carry: false };
        let train = Train::uniform(probe, 101).unwrap();
        let mut at = Time::ZERO;
        let mut flight = Flight { sent: vec![Some(at)], ..Flight::default() };
        for place in 1..101 {
            at += Duration::from_micros(gap(place));
            flight.sent.push(Some(at));
        }
        let mut punctuality = Punctuality::default();
        punctuality.note(&train, &flight);
        punctuality
    }

    #[test]
    fn gaps_are_judged_as_the_calibration_judges_them() {
        assert_eq!(punctuality_of(|_| 1050).doubts(), []);
        assert_eq!(punctuality_of(|n| if n <= 50 { 1200 } else { 1000 }).doubts(), []);
        let most = punctuality_of(|n| if n <= 51 { 800 } else { 1000 });
        assert_eq!(most.doubts(), [Doubt::Late { late: 51, timed: 100 }]);
        assert_eq!(
            punctuality_of(|n| if n == 7 { 9000 } else { 1000 }).doubts(),
            [],
            "one of a hundred"
        );
        let paused = punctuality_of(|n| if n % 50 == 7 { 1500 } else { 1000 });
        assert_eq!(paused.doubts(), [Doubt::Paused { late: 2, timed: 100 }]);
    }

    #[test]
    fn unsent_probes_dropped_datagrams_and_busy_hosts_raise_doubts() {
        let probe = Probe { size: 500, header: 0, gap: Duration::ZERO, may_carry: false };
        let train = Train::uniform(probe, 2).unwrap();
        let flight = Flight { sent: vec![None, Some(Time::ZERO)], dropped: 3, ..Flight::default() };
        let mut punctuality = Punctuality::default();
        punctuality.note(&train, &flight);
        assert_eq!(punctuality.doubts(), [Doubt::Unsent(1), Doubt::Dropped(3)]);
        let us = Duration::from_micros;
        let calm = Calibration {
            send_latency: us(3),
            receive_latency: us(3),
            gap_error: [us(5), us(700)],
            honest: Rate::from_mbps(20.0),
            is_valid: false,
        };
        let doubt = Doubt::of_host(End::Receiver, &calm).unwrap();
        assert!(doubt.to_string().contains("receiving host") && doubt.to_string().contains("700"));
        assert_eq!(Doubt::of_host(End::Sender, &Calibration { is_valid: true, ..calm }), None);
    }
}
