//! The protocol between sources and sinks: greetings and reports as JSON lines over TCP, and the header of each
//! measured datagram.

use serde::{Deserialize, Serialize};

/// The first line of every connection to `tcp-sink`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Greeting {
    /// This is the control connection of a measurement.
    Measure(TcpPlan),
    /// The connection is flow number `flow` of measurement `session`.
    Flow {
        /// The measurement.
        session: u64,
        flow: usize,
    },
    /// The bytes are to be discarded without counting.
    Discard,
}

/// A measurement for `tcp-sink`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TcpPlan {
    /// Chosen by the source; unique at the sink.
    pub session: u64,
    /// The number of flows.
    pub flows: usize,
    /// The time to count, ns.
    pub duration_ns: u64,
    /// Width of a bin, ns.
    pub bin_ns: u64,
}

impl TcpPlan {
    /// The number of whole bins within the duration.
    pub fn bins(&self) -> u64 {
        self.duration_ns / self.bin_ns.max(1)
    }
}

/// The counts of `tcp-sink`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TcpCount {
    /// The plan of the measurement.
    pub plan: TcpPlan,
    /// Bytes that the application received: `bytes[flow][bin]`.
    pub bytes: Vec<Vec<u64>>,
    /// `SO_RCVBUF` of each flow in the last bin with data, bytes.
    pub receive_buffers: Vec<u64>,
}

/// Messages by which the two sides of a control connection synchronise.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncMessage {
    /// From the sink: the plan is accepted; send the flows.
    Ready,
    /// From the source: all flows are connected; count from now on.
    Go,
    /// From the sink: it has started counting.
    Started,
    /// From the source: all flows have ended and the counts have arrived.
    Done,
}

/// A measurement for the datagram sink.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct DatagramPlan {
    /// Chosen by the source.
    pub session: u64,
    /// The number of trains; 1 for a blast.
    pub trains: u32,
    /// Datagrams in each train.
    pub packets: u32,
    /// The length of each IP packet, bytes.
    pub size: u32,
    pub report: ReportKind,
    /// The measurement ends this long after the last arrival, ns.
    pub settle_ns: u64,
}

/// The analysis that the sink sends back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportKind {
    /// Dispersion of each train.
    Trains,
    /// Losses and their bursts.
    Losses,
}

/// From the source: it has sent all datagrams.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SourceFinished {
    /// Datagrams sent.
    pub packets: u64,
}

/// The first bytes of a measured datagram's payload, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// The measurement.
    pub session: u64,
    /// Number of the train, from 0.
    pub train: u32,
    /// Number within the train, from 0.
    pub seq: u32,
    /// The time just before it was sent, `CLOCK_REALTIME`, ns.
    pub sent_ns: u64,
}

impl DatagramHeader {
    /// Length in bytes.
    pub const LEN: usize = 24;

    /// Writes the header to the start of `payload`, which must have at least [`Self::LEN`] bytes.
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

/// The length of the IP and UDP headers, bytes.
pub fn overhead(is_ipv6: bool) -> u32 {
    if is_ipv6 { 48 } else { 28 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_a_round_trip_and_a_short_one_is_rejected() {
        let h = DatagramHeader { session: 1 << 60, train: 7, seq: 9, sent_ns: u64::MAX };
        let mut bytes = [0; DatagramHeader::LEN];
        h.put(&mut bytes);
        assert_eq!(DatagramHeader::get(&bytes), Some(h));
        for len in 0..DatagramHeader::LEN {
            assert_eq!(DatagramHeader::get(&bytes[..len]), None);
        }
    }
}
