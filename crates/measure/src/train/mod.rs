//! Probe transactions (MGRP §2.1): a train of probes that is submitted as a whole, and the report on it.
//!
//! For each probe a tool specifies the length, how many of the bytes are the tool's own, the gap since the previous
//! probe, and whether the padding may carry riders. Tools never send by themselves, so each train can be checked
//! against what this host can send truthfully ([`Calibration`]) before any byte leaves.

mod calibration;
mod doubt;
mod flight;
mod stamp;

pub use calibration::{CALM, Calibration, KEPT, LARGEST, PacingError, SHORTEST_GAP, sizes};
pub use doubt::{Doubt, End, Punctuality};
pub use flight::{ArrivedProbe, Expired, Flight, Tally};
pub use stamp::Stamp;

use std::{net::IpAddr, num::NonZeroU8, time::Duration};
use thalweg_units::Rate;
use thiserror::Error;

/// IPv4 and UDP header bytes per probe; rates count them, as in pathload.
pub const OVERHEAD: u32 = 28;

/// IPv6 and UDP header bytes per probe.
pub const OVERHEAD_IPV6: u32 = 48;

/// IP and UDP header bytes per probe to this address.
pub fn overhead(to: IpAddr) -> u32 {
    if to.to_canonical().is_ipv4() { OVERHEAD } else { OVERHEAD_IPV6 }
}

/// The maximum number of probes in a train: more would be a flow.
pub const MAX_PROBES: usize = 4096;

/// The maximum duration of a train.
pub const LONGEST: Duration = Duration::from_secs(10);

/// One probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Bytes of its datagram, without IP and UDP headers.
    pub size: u16,
    /// Those of the bytes that belong to the tool; they reach the receiving tool unchanged.
    pub header: u16,
    /// Time from the start of the previous probe to the start of this one; for the first probe, from the start of the
    /// train.
    pub gap: Duration,
    /// Whether its padding may carry riders.
    pub may_carry: bool,
}

impl Probe {
    /// Bytes available to riders.
    pub fn padding(&self) -> u16 {
        self.size.saturating_sub(self.header)
    }
}

/// A train, which a tool submits as a whole (the barrier of Fig. 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Train {
    probes: Vec<Probe>,
    /// The hop limit of each probe; empty: no probe has a limit.
    hops: Vec<Option<NonZeroU8>>,
    overhead: u32,
}

/// Why probes do not form a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TrainError {
    /// There is no probe.
    #[error("a train has at least one probe")]
    Empty,
    /// There are too many probes; holds their number.
    #[error("a train has at most {MAX_PROBES} probes; this one has {0}")]
    Long(usize),
    /// It takes too long; holds its duration.
    #[error("a train lasts at most {} s; this one lasts {} ms", LONGEST.as_secs(), .0.as_millis())]
    Slow(Duration),
    /// A probe is shorter than its header; holds its place.
    #[error("probe {0} is shorter than its header")]
    Header(usize),
    /// The number of hop limits differs from the number of probes; holds both.
    #[error("the train has {1} probes, but hop limits are given for {0}")]
    Hops(usize, usize),
}

impl Train {
    /// Creates a train of these probes, in this order; over IPv4, unless [`Self::with_overhead`] says otherwise.
    ///
    /// # Errors
    /// [`TrainError`].
    pub fn new(probes: Vec<Probe>) -> Result<Self, TrainError> {
        let takes = probes.iter().fold(Duration::ZERO, |sum, probe| sum.saturating_add(probe.gap));
        match probes.iter().position(|probe| probe.header > probe.size) {
            _ if probes.is_empty() => Err(TrainError::Empty),
            _ if probes.len() > MAX_PROBES => Err(TrainError::Long(probes.len())),
            _ if takes > LONGEST => Err(TrainError::Slow(takes)),
            Some(at) => Err(TrainError::Header(at)),
            None => Ok(Self { probes, hops: Vec::new(), overhead: OVERHEAD }),
        }
    }

    /// The same train with these hop limits of its probes (`None`: no limit).
    ///
    /// # Errors
    /// [`TrainError::Hops`].
    pub fn limited(self, hops: Vec<Option<NonZeroU8>>) -> Result<Self, TrainError> {
        match hops.len() == self.probes.len() {
            true => Ok(Self { hops, ..self }),
            false => Err(TrainError::Hops(hops.len(), self.probes.len())),
        }
    }

    /// The same train with this many IP and UDP header bytes per probe ([`overhead`]).
    #[must_use]
    pub fn with_overhead(self, overhead: u32) -> Self {
        Self { overhead, ..self }
    }

    /// IP and UDP header bytes per probe.
    pub fn overhead(&self) -> u32 {
        self.overhead
    }

    /// Whether any of its probes has a hop limit.
    pub fn is_limited(&self) -> bool {
        self.hops.iter().any(Option::is_some)
    }

    /// The hop limit of the probe at this place; `None`: no limit.
    pub fn hops(&self, place: usize) -> Option<NonZeroU8> {
        self.hops.get(place).copied().flatten()
    }

    /// Creates a train of `count` equal probes with this gap; the first leaves at once.
    ///
    /// # Errors
    /// [`TrainError`].
    pub fn uniform(probe: Probe, count: usize) -> Result<Self, TrainError> {
        let mut probes = vec![probe; count];
        if let Some(first) = probes.first_mut() {
            first.gap = Duration::ZERO;
        }
        Self::new(probes)
    }

    /// Its probes, in the order of departure.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// The time from the first probe to the last.
    pub fn duration(&self) -> Duration {
        self.probes.iter().skip(1).map(|probe| probe.gap).sum()
    }

    /// Bytes on the network, including headers.
    pub fn bytes(&self) -> u64 {
        self.probes.iter().map(|probe| u64::from(probe.size) + u64::from(self.overhead)).sum()
    }
}

/// Bits on the network of a probe of `size` bytes, to which IP and UDP add `overhead` bytes.
pub fn bits_of(size: u16, overhead: u32) -> f64 {
    (f64::from(size) + f64::from(overhead)) * 8.0
}

/// The rate of such probes at intervals of `gap`; pathload's `(L + 28) · 8 / T`.
pub fn rate_of(size: u16, overhead: u32, gap: Duration) -> Rate {
    let bits = bits_of(size, overhead);
    match gap.is_zero() {
        true => Rate::from_bps(u64::MAX),
        false => Rate::from_bps((bits / gap.as_secs_f64()) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(size: u16, gap_us: u64) -> Probe {
        Probe { size, header: 20, gap: Duration::from_micros(gap_us), may_carry: true }
    }

    #[test]
    fn a_train_of_figure_1_takes_four_gaps() {
        let train = Train::uniform(probe(1000, 1000), 5).unwrap();
        assert_eq!((train.duration(), train.bytes()), (Duration::from_millis(4), 5 * 1028));
        assert_eq!(train.probes()[0].padding(), 980);
        let to = |ip: &str| overhead(ip.parse().unwrap());
        assert_eq!([to("192.0.2.1"), to("::ffff:192.0.2.1"), to("2001:db8::1")], [28, 28, 48]);
        assert_eq!(train.with_overhead(to("2001:db8::1")).bytes(), 5 * 1048);
    }

    #[test]
    fn invalid_trains_are_refused() {
        assert_eq!(Train::new(vec![]), Err(TrainError::Empty));
        assert_eq!(Train::uniform(probe(100, 1), 4097), Err(TrainError::Long(4097)));
        assert_eq!(Train::uniform(probe(19, 1), 3), Err(TrainError::Header(0)));
        assert!(matches!(Train::uniform(probe(99, 100_000), 200), Err(TrainError::Slow(_))));
    }

    #[test]
    fn hop_limits_are_given_for_each_probe_or_for_none() {
        let train = Train::uniform(probe(1000, 0), 2).unwrap();
        assert!(!train.is_limited() && train.hops(1).is_none());
        let limited = train.clone().limited(vec![NonZeroU8::new(3), None]).unwrap();
        assert!(limited.is_limited() && limited.hops(1).is_none());
        assert_eq!(limited.hops(0), NonZeroU8::new(3));
        assert_eq!(train.limited(vec![None]), Err(TrainError::Hops(1, 2)));
    }

    #[test]
    fn rates_count_headers() {
        assert_eq!(rate_of(972, OVERHEAD, Duration::from_millis(1)), Rate::from_mbps(8.0));
        // Table 1 counts whole packets: 300 bytes every 200 µs are 12 Mbit/s.
        assert_eq!(rate_of(952, OVERHEAD_IPV6, Duration::from_millis(1)), Rate::from_mbps(8.0));
        assert_eq!(rate_of(272, OVERHEAD, Duration::from_micros(200)), Rate::from_mbps(12.0));
    }
}
