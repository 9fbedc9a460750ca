//! What a sender counts by itself: bytes that the receiver's TCP has acknowledged.
//!
//! A receiver can say any rate; to have more acknowledged than it takes, its kernel would have
//! to acknowledge what has not come (Savage et al., "TCP Congestion Control with a Misbehaving
//! Receiver", 1999), and then the sender does send as fast.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};
use thalweg_measure::bulk::{self, Bulk, Found};
use thalweg_net::TcpInfo;
use thalweg_units::ByteSize;
use thalweg_wire::mesh::measure_flow::{Limits, Verdict};
use tokio::{
    net::TcpStream,
    time::{Instant, Interval, MissedTickBehavior, interval},
};

/// How often the kernel's counter is read: a tenth of the shortest bin.
const EACH: Duration = Duration::from_millis(10);

/// Looks that are kept: those of the longest flow, and of what follows it.
const MOST: usize = 1000;

/// Counts one flow.
#[derive(Debug)]
pub(super) struct Meter {
    /// The same connection; both halves of the other handle are in use.
    socket: OwnedFd,
    bulk: Bulk,
    /// Time and bytes at each look.
    samples: Vec<(Duration, u64)>,
    /// Acknowledged before the flow.
    before: u64,
    began: Instant,
    /// The first acknowledgement comes so long after the first byte: the receiver counts from
    /// when that came, and so does this.
    round_trip: Duration,
}

impl Meter {
    /// Begins to count; from now on bytes are poured.
    ///
    /// # Errors
    /// No file descriptor is left, or the connection is none.
    pub fn start(tcp: &TcpStream, limits: Limits) -> io::Result<Self> {
        let (socket, info) = (tcp.as_fd().try_clone_to_owned()?, TcpInfo::of(tcp)?);
        let round_trip = if info.min_rtt == Duration::MAX { Duration::ZERO } else { info.min_rtt };
        let limits =
            bulk::Limits { time: limits.time(), bytes: ByteSize::from_bytes(limits.bytes) };
        let bulk = Bulk::new(limits, round_trip);
        let (samples, before) = (Vec::new(), info.acknowledged);
        Ok(Self { socket, bulk, samples, before, began: Instant::now(), round_trip })
    }

    /// When to look.
    pub fn looks() -> Interval {
        let mut looks = interval(EACH);
        looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        looks
    }

    /// Reads the counter. A connection that is gone counts no more.
    pub fn look(&mut self) {
        let acknowledged = TcpInfo::of(&self.socket).map_or(0, |info| info.acknowledged);
        let bytes = acknowledged.saturating_sub(self.before);
        if bytes > 0 && self.samples.len() < MOST {
            let at = self.began.elapsed().saturating_sub(self.round_trip);
            self.samples.push((at, bytes));
            _ = self.bulk.sample(at, bytes);
        }
    }

    /// What it has come to, over the time that the receiver judged; `None`: nothing.
    pub fn found(&self, verdict: &Verdict) -> Option<Found> {
        self.bulk.beside(&self.samples, verdict.steady)
    }
}
