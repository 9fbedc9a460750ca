//! What this host can send and receive truthfully, as measured at start.

use super::{OVERHEAD, Train, bits_of, rate_of};
use std::time::Duration;
use thalweg_units::Rate;
use thiserror::Error;

/// No gap below this is asked for, whatever the host (pathload's `min gap`).
pub const SHORTEST_GAP: Duration = Duration::from_micros(7);

/// Gaps are kept if half of them are off by less than this share.
pub const KEPT: f64 = 0.1;

/// A host is calm if of a hundred gaps ninety-nine are off by less.
pub const CALM: Duration = Duration::from_micros(500);

/// The probes with which [`Calibration::honest`] is found: the longest that Ethernet carries whole.
pub const LARGEST: u16 = 1472;

/// MTUs that are tried, bytes: Ethernet's, then what tunnels leave, and the least that IPv6 and IPv4 have anywhere.
const MTUS: [u16; 5] = [1500, 1440, 1400, 1280, 576];

/// Probes that are tried to see how long one may be, the longest first, where IP and UDP add so many bytes to each.
pub fn sizes(overhead: u32) -> [u16; 5] {
    MTUS.map(|mtu| mtu.saturating_sub(overhead as u16))
}

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
    /// The host was too busy to be calibrated; 99 of 100 gaps were nearer than this.
    #[error(
        "this host is too busy to time probes: of its gaps one in a hundred was off by {} µs or more; try again when it is calm",
        .0.as_micros()
    )]
    Invalid(Duration),
    /// A probe would follow too soon.
    #[error(
        "probe {at} is to follow after {} µs; this host keeps gaps of {} µs and more, by what it can or by its `max_rate`",
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
    #[error(
        "the train asks for {asked}; this host sends up to {honest}, by what it can or by its `max_rate`"
    )]
    Rate {
        /// As asked for.
        asked: Rate,
        /// The highest.
        honest: Rate,
    },
}

impl Calibration {
    /// The shortest gap: twice what sending or receiving takes (pathload), and no shorter than those that were
    /// found to be kept.
    pub fn shortest_gap(&self) -> Duration {
        let latency = self.send_latency.max(self.receive_latency);
        // It is calibrated over IPv4; a packet of IPv6 with as many bytes takes as long.
        let bits = bits_of(LARGEST, OVERHEAD);
        let kept = match self.honest.as_bps() {
            0 => Duration::MAX,
            bps => Duration::from_secs_f64(bits / bps as f64),
        };
        SHORTEST_GAP.max(latency.saturating_mul(2)).max(kept)
    }

    /// The same for who takes gaps as a busy host keeps them: nothing is asked but what sending and receiving take.
    ///
    /// What is found out with it is to be doubted ([`super::Doubt`]); each probe's own time says how far it was off.
    #[must_use]
    pub fn as_it_is(self) -> Self {
        Self { honest: Rate::from_bps(u64::MAX), is_valid: true, ..self }
    }

    /// The highest rate with probes of `size`, to which IP and UDP add `overhead`.
    pub fn highest(&self, size: u16, overhead: u32) -> Rate {
        rate_of(size, overhead, self.shortest_gap()).min(self.honest)
    }

    /// Whether a train can be sent as it says. Gaps of zero say "as fast as it goes", and always can.
    ///
    /// # Errors
    /// [`Dishonest`].
    pub fn check(&self, train: &Train) -> Result<(), Dishonest> {
        if !self.is_valid {
            return Err(Dishonest::Invalid(self.gap_error[1]));
        }
        let least = self.shortest_gap();
        let probes = train.probes().iter().enumerate().skip(1);
        for (at, probe) in probes.filter(|(_, probe)| !probe.gap.is_zero()) {
            if probe.gap < least {
                return Err(Dishonest::Gap { at, gap: probe.gap, least });
            }
        }
        train.within(self.honest)
    }
}

impl Train {
    /// Whether no gap but those of zero is faster than that.
    ///
    /// # Errors
    /// [`Dishonest::Rate`] of the first that is.
    pub fn within(&self, honest: Rate) -> Result<(), Dishonest> {
        let gaps = self.probes().iter().skip(1).filter(|probe| !probe.gap.is_zero());
        let mut rates = gaps.map(|probe| rate_of(probe.size, self.overhead(), probe.gap));
        match rates.find(|asked| *asked > honest) {
            Some(asked) => Err(Dishonest::Rate { asked, honest }),
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
    fn what_the_host_cannot_do_is_refused_with_the_reason() {
        assert_eq!(host().check(&train(1000, 100 * US)), Ok(()));
        assert_eq!(host().check(&train(1000, Duration::ZERO)), Ok(()), "back to back");
        let gap = host().check(&train(200, 15 * US));
        assert_eq!(gap, Err(Dishonest::Gap { at: 1, gap: 15 * US, least: 30 * US }));
        assert!(matches!(host().check(&train(9000, 31 * US)), Err(Dishonest::Rate { .. })));
        let busy = Calibration { is_valid: false, ..host() };
        let why = busy.check(&train(1000, 100 * US)).unwrap_err();
        assert!(why.to_string().contains("off by 20 µs"), "{why}");
        assert_eq!(host().highest(1472, OVERHEAD), Rate::from_mbps(400.0));
    }

    #[test]
    fn the_longest_probes_fill_ethernet_s_packets_over_ipv6_too() {
        assert_eq!(sizes(OVERHEAD), [LARGEST, 1412, 1372, 1252, 548]);
        assert_eq!(sizes(OVERHEAD_IPV6)[..4], [1452, 1392, 1352, 1232]);
        assert_eq!(host().highest(1452, OVERHEAD_IPV6), host().highest(LARGEST, OVERHEAD));
    }

    #[test]
    fn who_takes_a_busy_host_as_it_is_is_refused_only_what_it_cannot_do() {
        let busy = Calibration { is_valid: false, honest: Rate::ZERO, ..host() };
        assert_eq!(busy.shortest_gap(), Duration::MAX);
        assert_eq!(busy.as_it_is().check(&train(200, 20 * US)), Ok(()));
        let gap = busy.as_it_is().check(&train(200, 19 * US));
        assert_eq!(gap, Err(Dishonest::Gap { at: 1, gap: 19 * US, least: 20 * US }));
    }
}
