//! The rates and gaps at which this host sends and receives truthfully, as measured at start.

use super::{OVERHEAD, Train, bits_of, rate_of};
use std::time::Duration;
use thalweg_units::Rate;
use thiserror::Error;

/// The shortest gap that is ever requested, on any host (pathload's `min gap`).
pub const SHORTEST_GAP: Duration = Duration::from_micros(7);

/// A host keeps its gaps if half of them are off by less than this share.
pub const KEPT: f64 = 0.1;

/// A host is calm if 99 of 100 gaps are off by less than this.
pub const CALM: Duration = Duration::from_micros(500);

/// The size of the probes that measure [`Calibration::honest`], bytes: the largest that Ethernet carries unfragmented.
pub const LARGEST: u16 = 1472;

/// MTUs to try, bytes: Ethernet's, then those that tunnels leave, then the minimum MTUs of IPv6 and IPv4.
const MTUS: [u16; 5] = [1500, 1440, 1400, 1280, 576];

/// The probe sizes to try in order to find the path's largest, in descending order; `overhead`: IP and UDP header bytes
/// per probe.
pub fn sizes(overhead: u32) -> [u16; 5] {
    MTUS.map(|mtu| mtu.saturating_sub(overhead as u16))
}

/// The result of a calibration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// The median time to send one probe.
    pub send_latency: Duration,
    /// The median time to receive one probe.
    pub receive_latency: Duration,
    /// By how much gaps are off: the median and the 99th percentile.
    pub gap_error: [Duration; 2],
    /// The highest rate at which the host keeps its gaps.
    pub honest: Rate,
    /// Whether the host was calm enough for the result to be trusted; otherwise no train is sent.
    pub is_valid: bool,
}

/// Why this host cannot send a train truthfully.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PacingError {
    /// The host was too busy to be calibrated; holds the 99th percentile of its gap errors.
    #[error(
        "this host is too busy to time probes: 1 % of its gaps were off by {} µs or more; try \
         again when it is less busy",
        .0.as_micros()
    )]
    Invalid(Duration),
    /// A gap is too short.
    #[error(
        "probe {at} should follow after {} µs, but this host's speed or its `max_rate` allows only \
         gaps of {} µs or more",
        gap.as_micros(), least.as_micros()
    )]
    Gap {
        /// The place of the probe in the train.
        at: usize,
        gap: Duration,
        /// The shortest gap that this host keeps.
        least: Duration,
    },
    /// The rate is too high.
    #[error(
        "the train needs {asked}, but this host's speed or its `max_rate` allows at most {honest}"
    )]
    Rate {
        asked: Rate,
        /// The highest rate that this host sends.
        honest: Rate,
    },
}

impl Calibration {
    /// The shortest gap: twice the time to send or receive a probe (pathload), and no shorter than the gaps that
    /// calibration found to be kept.
    pub fn shortest_gap(&self) -> Duration {
        let latency = self.send_latency.max(self.receive_latency);
        // Calibration uses IPv4; an IPv6 packet of the same length takes as long.
        let bits = bits_of(LARGEST, OVERHEAD);
        let kept = match self.honest.as_bps() {
            0 => Duration::MAX,
            bps => Duration::from_secs_f64(bits / bps as f64),
        };
        SHORTEST_GAP.max(latency.saturating_mul(2)).max(kept)
    }

    /// The calibration for callers that accept the gaps of a busy host as they are: only the times to send and receive
    /// limit trains.
    ///
    /// Results measured with it are doubtful ([`super::Doubt`]); the send time of each probe says how far it was off.
    #[must_use]
    pub fn accepting_busy(self) -> Self {
        Self { honest: Rate::from_bps(u64::MAX), is_valid: true, ..self }
    }

    /// The highest rate with probes of `size` bytes, to which IP and UDP add `overhead` bytes.
    pub fn highest(&self, size: u16, overhead: u32) -> Rate {
        rate_of(size, overhead, self.shortest_gap()).min(self.honest)
    }

    /// Checks whether this host can send the train truthfully. Gaps of zero mean "as fast as possible" and always pass.
    ///
    /// # Errors
    /// [`PacingError`].
    pub fn check(&self, train: &Train) -> Result<(), PacingError> {
        if !self.is_valid {
            return Err(PacingError::Invalid(self.gap_error[1]));
        }
        let least = self.shortest_gap();
        let probes = train.probes().iter().enumerate().skip(1);
        for (at, probe) in probes.filter(|(_, probe)| !probe.gap.is_zero()) {
            if probe.gap < least {
                return Err(PacingError::Gap { at, gap: probe.gap, least });
            }
        }
        train.check_rate(self.honest)
    }
}

impl Train {
    /// Checks that no gap except gaps of zero needs a higher rate than `honest`.
    ///
    /// # Errors
    /// [`PacingError::Rate`] for the first gap that does.
    pub fn check_rate(&self, honest: Rate) -> Result<(), PacingError> {
        let gaps = self.probes().iter().skip(1).filter(|probe| !probe.gap.is_zero());
        let mut rates = gaps.map(|probe| rate_of(probe.size, self.overhead(), probe.gap));
        match rates.find(|asked| *asked > honest) {
            Some(asked) => Err(PacingError::Rate { asked, honest }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{OVERHEAD_IPV6, Probe},
        *,
    };

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
    fn trains_that_the_host_cannot_send_are_refused_with_the_reason() {
        assert_eq!(host().check(&train(1000, 100 * US)), Ok(()));
        assert_eq!(host().check(&train(1000, Duration::ZERO)), Ok(()), "back to back");
        let gap = host().check(&train(200, 15 * US));
        assert_eq!(gap, Err(PacingError::Gap { at: 1, gap: 15 * US, least: 30 * US }));
        assert!(matches!(host().check(&train(9000, 31 * US)), Err(PacingError::Rate { .. })));
        let busy = Calibration { is_valid: false, ..host() };
        let why = busy.check(&train(1000, 100 * US)).unwrap_err();
        assert!(why.to_string().contains("off by 20 µs"), "{why}");
        assert_eq!(host().highest(1472, OVERHEAD), Rate::from_mbps(400.0));
    }

    #[test]
    fn the_largest_probes_fill_ethernet_packets_over_ipv6_too() {
        assert_eq!(sizes(OVERHEAD), [LARGEST, 1412, 1372, 1252, 548]);
        assert_eq!(sizes(OVERHEAD_IPV6)[..4], [1452, 1392, 1352, 1232]);
        assert_eq!(host().highest(1452, OVERHEAD_IPV6), host().highest(LARGEST, OVERHEAD));
    }

    #[test]
    fn a_busy_host_taken_as_it_is_refuses_only_gaps_below_its_latency() {
        let busy = Calibration { is_valid: false, honest: Rate::ZERO, ..host() };
        assert_eq!(busy.shortest_gap(), Duration::MAX);
        assert_eq!(busy.accepting_busy().check(&train(200, 20 * US)), Ok(()));
        let gap = busy.accepting_busy().check(&train(200, 19 * US));
        assert_eq!(gap, Err(PacingError::Gap { at: 1, gap: 19 * US, least: 20 * US }));
    }
}
