//! What sources and sinks say to each other: greetings and reports as JSON
//! lines over TCP, and the header of each measured datagram.

use serde::{Deserialize, Serialize};

/// The first line of every connection to `tcp-sink`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Greeting {
    /// This is the control connection of a measurement.
    Measure(TcpPlan),
    /// What follows is flow number `flow` of measurement `session`.
    Flow {
        /// The measurement.
        session: u64,
        /// From 0.
        flow: usize,
    },
    /// What follows is to be thrown away uncounted.
    Discard,
}

/// What `tcp-sink` is to count.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TcpPlan {
    /// Chosen by the source; unlike all others at one sink.
    pub session: u64,
    /// How many flows will come.
    pub flows: usize,
    /// How long to count, ns.
    pub duration_ns: u64,
    /// Width of a bin, ns.
    pub bin_ns: u64,
}

impl TcpPlan {
    /// Whole bins within the duration.
    pub fn bins(&self) -> u64 {
        self.duration_ns / self.bin_ns.max(1)
    }
}

/// What `tcp-sink` counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TcpCount {
    /// The plan that was followed.
    pub plan: TcpPlan,
    /// Bytes that the application received: `bytes[flow][bin]`.
    pub bytes: Vec<Vec<u64>>,
    /// SO_RCVBUF of each flow at its last byte counted.
    pub receive_buffers: Vec<u64>,
}

/// The sides of a control connection take turns with this.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Turn {
    /// Sink: the plan is taken, send the flows.
    Ready,
    /// Source: all flows are connected, count from now on.
    Go,
    /// Sink: counting.
    Started,
    /// Source: all flows are ended and the count is here.
    Done,
}

/// What the datagram sink is to expect.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DatagramPlan {
    /// Chosen by the source.
    pub session: u64,
    /// How many trains; 1 for a blast.
    pub trains: u32,
    /// Datagrams in each train.
    pub packets: u32,
    /// Length of each on the wire: the IP packet, bytes.
    pub size: u32,
    /// What to make of it.
    pub report: ReportKind,
    /// How long after the last arrival nothing more is to be expected, ns.
    pub settle_ns: u64,
}

/// Which analysis the sink is to send back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportKind {
    /// Dispersion of each train.
    Trains,
    /// Losses and their bursts.
    Losses,
}

/// Said by the source when it has sent all.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sent {
    /// Datagrams sent.
    pub packets: u64,
}

/// The first bytes of a measured datagram's payload, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The measurement.
    pub session: u64,
    /// Number of the train, from 0.
    pub train: u32,
    /// Number within the train, from 0.
    pub seq: u32,
    /// CLOCK_REALTIME just before it was sent, ns.
    pub sent_ns: u64,
}

impl Header {
    /// Length in bytes.
    pub const LEN: usize = 24;

    /// Writes the header to the start of `payload`, at least [`Self::LEN`] bytes long.
    pub fn put(&self, payload: &mut [u8]) {
        payload[..8].copy_from_slice(&self.session.to_le_bytes());
        payload[8..12].copy_from_slice(&self.train.to_le_bytes());
        payload[12..16].copy_from_slice(&self.seq.to_le_bytes());
        payload[16..24].copy_from_slice(&self.sent_ns.to_le_bytes());
    }

    /// Reads the header; `None` if `payload` is too short.
    pub fn get(payload: &[u8]) -> Option<Self> {
        let session = u64::from_le_bytes(*payload.first_chunk()?);
        let train = u32::from_le_bytes(*payload.get(8..)?.first_chunk()?);
        let seq = u32::from_le_bytes(*payload.get(12..)?.first_chunk()?);
        let sent_ns = u64::from_le_bytes(*payload.get(16..)?.first_chunk()?);
        Some(Self { session, train, seq, sent_ns })
    }
}

/// IP and UDP headers before the payload, bytes.
pub fn overhead(is_ipv6: bool) -> u32 {
    if is_ipv6 { 48 } else { 28 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_goes_both_ways_and_a_short_one_is_refused() {
        let h = Header { session: 1 << 60, train: 7, seq: 9, sent_ns: u64::MAX };
        let mut bytes = [0; Header::LEN];
        h.put(&mut bytes);
        assert_eq!(Header::get(&bytes), Some(h));
        for len in 0..Header::LEN {
            assert_eq!(Header::get(&bytes[..len]), None);
        }
    }
}
