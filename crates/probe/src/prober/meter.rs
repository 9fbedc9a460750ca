//! The sender's own count of a flow: bytes that the receiver's TCP has acknowledged.
//!
//! A receiver can report any rate. For more to be acknowledged than arrives, its kernel would have to acknowledge bytes
//! that have not arrived (Savage et al., "TCP Congestion Control with a Misbehaving Receiver", 1999), and then the
//! sender does send as fast.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};
use thalweg_measure::bulk::{self, Bulk, BulkResult};
use thalweg_net::TcpInfo;
use thalweg_units::ByteSize;
use thalweg_wire::mesh::measure_flow::{Limits, Verdict};
use tokio::{
    net::TcpStream,
    time::{Instant, Interval, MissedTickBehavior, interval},
};

/// How often the kernel's counter is read: a tenth of the shortest bin.
const EACH: Duration = Duration::from_millis(10);

/// The most readings that are kept: those of the longest flow, and of what follows it.
const MOST: usize = 1000;

/// Counts the acknowledged bytes of one flow.
#[derive(Debug)]
pub(super) struct Meter {
    /// A second handle of the connection, because both halves of the first one are in use.
    socket: OwnedFd,
    bulk: Bulk,
    /// The time and the bytes of each reading.
    samples: Vec<(Duration, u64)>,
    /// Bytes acknowledged before the flow.
    before: u64,
    began: Instant,
    /// The first acknowledgement comes this long after the first byte was sent. The receiver counts from the arrival of
    /// that byte, and so does this.
    round_trip: Duration,
}

impl Meter {
    /// Begins to count; the caller then begins to send.
    ///
    /// # Errors
    /// No file descriptor is left, or the connection is gone.
    pub fn start(tcp: &TcpStream, limits: Limits) -> io::Result<Self> {
        let (socket, info) = (tcp.as_fd().try_clone_to_owned()?, TcpInfo::of(tcp)?);
        let round_trip = if info.min_rtt == Duration::MAX { Duration::ZERO } else { info.min_rtt };
        let limits =
            bulk::BulkLimits { time: limits.time(), bytes: ByteSize::from_bytes(limits.bytes) };
        let bulk = Bulk::new(limits, round_trip);
        let (samples, before) = (Vec::new(), info.acknowledged);
        Ok(Self { socket, bulk, samples, before, began: Instant::now(), round_trip })
    }

    /// The ticks at which to read the counter.
    pub fn reading_ticks() -> Interval {
        let mut looks = interval(EACH);
        looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        looks
    }

    /// Reads the counter. A lost connection adds nothing.
    pub fn read(&mut self) {
        let acknowledged = TcpInfo::of(&self.socket).map_or(0, |info| info.acknowledged);
        let bytes = acknowledged.saturating_sub(self.before);
        if bytes > 0 && self.samples.len() < MOST {
            let at = self.began.elapsed().saturating_sub(self.round_trip);
            self.samples.push((at, bytes));
            _ = self.bulk.sample(at, bytes);
        }
    }

    /// The result over the time that the receiver judged; `None` if nothing was acknowledged.
    pub fn found(&self, verdict: &Verdict) -> Option<BulkResult> {
        self.bulk.beside(&self.samples, verdict.steady)
    }
}
