//! Probe transactions (MGRP §2.1): a train of probes that is submitted whole, and the report on it
//! afterwards.
//!
//! A tool says of each probe how long it is, how many of its bytes are the tool's own, the gap to the
//! one before, and whether its padding may carry riders. It never sends by itself, so all of its trains can be
//! held against what this host can send truthfully ([`Calibration`]) before any byte leaves.

mod calibration;
mod doubt;
mod flight;
mod stamp;

pub use calibration::{CALM, Calibration, Dishonest, KEPT, LARGEST, SHORTEST_GAP, sizes};
pub use doubt::{Doubt, End, Punctuality};
pub use flight::{Expired, Flight, Passed, Tally};
pub use stamp::Stamp;

use std::{net::IpAddr, num::NonZeroU8, time::Duration};
use thalweg_units::Rate;
use thiserror::Error;

/// What IPv4 and UDP add to each probe, bytes; rates count it, as pathload's do.
pub const OVERHEAD: u32 = 28;

/// The same of IPv6 and UDP.
pub const OVERHEAD_IPV6: u32 = 48;

/// What IP and UDP add to each probe that goes to this address, bytes.
pub fn overhead(to: IpAddr) -> u32 {
    if to.to_canonical().is_ipv4() { OVERHEAD } else { OVERHEAD_IPV6 }
}

/// The most probes of a train: more would be a flow.
pub const MAX_PROBES: usize = 4096;

/// The longest a train may take to send.
pub const LONGEST: Duration = Duration::from_secs(10);

/// One probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Bytes of its datagram, all included but IP's and UDP's headers.
    pub size: u16,
    /// Of these the tool's own, which reach the receiving tool as they are.
    pub header: u16,
    /// From the beginning of the probe before it to its own; of the first one from the train's beginning.
    pub gap: Duration,
    /// Whether its padding may carry riders.
    pub may_carry: bool,
}

impl Probe {
    /// What riders may have of it, bytes.
    pub fn padding(&self) -> u16 {
        self.size.saturating_sub(self.header)
    }
}

/// A train: what a tool submits at once (the barrier of Fig. 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Train {
    probes: Vec<Probe>,
    /// How many hops each may go; empty: all go as far as it goes.
    hops: Vec<Option<NonZeroU8>>,
    overhead: u32,
}

/// No train.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TrainError {
    /// It has no probe.
    #[error("a train has at least one probe")]
    Empty,
    /// It has too many; holds how many.
    #[error("a train has at most {MAX_PROBES} probes; this one has {0}")]
    Long(usize),
    /// It takes too long; holds how long.
    #[error("a train takes at most {} s; this one takes {} ms", LONGEST.as_secs(), .0.as_millis())]
    Slow(Duration),
    /// A probe's own bytes do not fit into it; holds its place.
    #[error("probe {0} is shorter than its header")]
    Header(usize),
    /// Hops are said of more or fewer probes than there are.
    #[error("hops are said of {0} probes, and there are {1}")]
    Hops(usize, usize),
}

impl Train {
    /// These probes, in this order; over IPv4, unless [`Self::over`] says otherwise.
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

    /// The same, some of whose probes go so many hops and no farther (`None`: as far as it goes).
    ///
    /// # Errors
    /// [`TrainError::Hops`].
    pub fn limited(self, hops: Vec<Option<NonZeroU8>>) -> Result<Self, TrainError> {
        match hops.len() == self.probes.len() {
            true => Ok(Self { hops, ..self }),
            false => Err(TrainError::Hops(hops.len(), self.probes.len())),
        }
    }

    /// The same, to each of whose probes IP and UDP add so many bytes ([`overhead`]).
    #[must_use]
    pub fn over(self, overhead: u32) -> Self {
        Self { overhead, ..self }
    }

    /// What IP and UDP add to each of its probes, bytes.
    pub fn overhead(&self) -> u32 {
        self.overhead
    }

    /// Whether any of its probes is limited.
    pub fn is_limited(&self) -> bool {
        self.hops.iter().any(Option::is_some)
    }

    /// How many hops the probe at this place may go; `None`: as far as it goes.
    pub fn hops(&self, place: usize) -> Option<NonZeroU8> {
        self.hops.get(place).copied().flatten()
    }

    /// So many equal probes with this gap; the first goes at once.
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

    /// Its probes, in the order in which they go.
    pub fn probes(&self) -> &[Probe] {
        &self.probes
    }

    /// From the first probe to the last.
    pub fn takes(&self) -> Duration {
        self.probes.iter().skip(1).map(|probe| probe.gap).sum()
    }

    /// Bytes on the network.
    pub fn bytes(&self) -> u64 {
        self.probes.iter().map(|probe| u64::from(probe.size) + u64::from(self.overhead)).sum()
    }
}

/// The bits on the network of a probe of `size` bytes, to which IP and UDP add `overhead`.
pub fn bits_of(size: u16, overhead: u32) -> f64 {
    (f64::from(size) + f64::from(overhead)) * 8.0
}

/// The rate of such probes every `gap`; pathload's `(L + 28) · 8 / T`.
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
        assert_eq!((train.takes(), train.bytes()), (Duration::from_millis(4), 5 * 1028));
        assert_eq!(train.probes()[0].padding(), 980);
        let to = |ip: &str| overhead(ip.parse().unwrap());
        assert_eq!([to("192.0.2.1"), to("::ffff:192.0.2.1"), to("2001:db8::1")], [28, 28, 48]);
        assert_eq!(train.over(to("2001:db8::1")).bytes(), 5 * 1048);
    }

    #[test]
    fn what_makes_no_train_is_refused() {
        assert_eq!(Train::new(vec![]), Err(TrainError::Empty));
        assert_eq!(Train::uniform(probe(100, 1), 4097), Err(TrainError::Long(4097)));
        assert_eq!(Train::uniform(probe(19, 1), 3), Err(TrainError::Header(0)));
        assert!(matches!(Train::uniform(probe(99, 100_000), 200), Err(TrainError::Slow(_))));
    }

    #[test]
    fn hops_are_said_of_each_probe_or_of_none() {
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
        // Table 1 counts probes of 300 bytes whole: 12 Mbit/s every 200 µs.
        assert_eq!(rate_of(952, OVERHEAD_IPV6, Duration::from_millis(1)), Rate::from_mbps(8.0));
        assert_eq!(rate_of(272, OVERHEAD, Duration::from_micros(200)), Rate::from_mbps(12.0));
    }
}
