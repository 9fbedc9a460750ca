//! The kernel's counters of a TCP connection.

use crate::sys;
use std::{io, os::fd::AsFd, time::Duration};
use thalweg_units::Rate;

/// A reading of the kernel's counters of one connection (Linux `struct tcp_info`).
///
/// `retransmitted`, `acknowledged`, `received`, `sent`, `segments`, `data_segments`, `out_of_order`, `busy` and the two
/// limited times count from the beginning of the connection and never decrease; the difference of two readings describes an interval. All other
/// fields describe the present moment. Fields that the kernel does not know (before 4.10) read as zero.
///
/// The pump judges liveness by it, and [`crate::legs`] estimates the rates of legs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rtt_deviation: Duration,
    /// The smallest recent round-trip time; [`Duration::MAX`] before the first sample.
    pub min_rtt: Duration,
    /// Congestion window, segments.
    pub cwnd: u32,
    /// The size of sent segments, bytes.
    pub mss: u32,
    /// The latest delivery rate; app-limited samples are marked by `delivery_app_limited`.
    pub delivery_rate: Rate,
    /// Whether `delivery_rate` was taken while the sender had nothing to send.
    pub delivery_app_limited: bool,
    /// The total number of retransmitted segments.
    pub retransmitted: u32,
    /// Segments that were sent and not acknowledged.
    pub unacknowledged: u32,
    /// Bytes that were written and not yet sent.
    pub unsent: u32,
    /// Bytes that the peer has acknowledged.
    pub acknowledged: u64,
    /// Bytes received in order.
    pub received: u64,
    /// Bytes sent, including retransmissions.
    pub sent: u64,
    /// Segments received and sent, including those without data.
    pub segments: u64,
    /// Segments received with data.
    pub data_segments: u64,
    /// Segments received after a gap; zero before Linux 5.4.
    pub out_of_order: u32,
    /// The round-trip time as estimated from received data, which includes queues on the way to this host; zero before
    /// the first sample.
    pub receiver_rtt: Duration,
    /// The time since the peer last acknowledged anything.
    pub since_ack: Duration,
    /// The time since data was last received.
    pub since_data: Duration,
    /// The receive window last announced to the peer, bytes beyond those received; zero before Linux 6.2.
    pub offered: u32,
    /// The time with data to send, including the next two.
    pub busy: Duration,
    /// The part of `busy` limited by the peer's receive window.
    pub receiver_limited: Duration,
    /// The part of `busy` limited by this end's send buffer.
    pub send_buffer_limited: Duration,
    /// Whether the peer has ended its direction, so that no more data can arrive.
    pub peer_has_ended: bool,
}

/// The bytes of a `struct tcp_info`, read by offset. Reads past their end yield zero.
///
/// The kernel's fields are native-endian at fixed offsets, and it only ever appends fields.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&self, at: usize) -> u32 {
        self.0.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }
    fn u64(&self, at: usize) -> u64 {
        self.0.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }
    fn micros(&self, at: usize) -> Duration {
        Duration::from_micros(self.u32(at).into())
    }
    fn millis(&self, at: usize) -> Duration {
        Duration::from_millis(self.u32(at).into())
    }
    fn long_micros(&self, at: usize) -> Duration {
        Duration::from_micros(self.u64(at))
    }
}

impl TcpInfo {
    /// Reads the counters of `socket`.
    ///
    /// # Errors
    /// If it is not a TCP socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let (bytes, length) = sys::tcp_info(socket.as_fd())?;
        Ok(Self::parse(&bytes[..length.min(bytes.len())]))
    }

    /// Parses `struct tcp_info` by the offsets of linux/tcp.h, which are the same on all of Linux's architectures with
    /// 8-byte alignment of 64-bit integers.
    fn parse(bytes: &[u8]) -> Self {
        let f = Fields(bytes);
        let min_rtt = f.u32(148);
        Self {
            rtt: f.micros(68),
            rtt_deviation: f.micros(72),
            // The kernel reports ~0 while it has no sample.
            min_rtt: if min_rtt == u32::MAX { Duration::MAX } else { f.micros(148) },
            cwnd: f.u32(80),
            mss: f.u32(16),
            delivery_rate: Rate::from_bps(f.u64(160).saturating_mul(8)),
            delivery_app_limited: bytes.get(7).is_some_and(|b| b & 1 == 1),
            retransmitted: f.u32(100),
            unacknowledged: f.u32(24),
            unsent: f.u32(144),
            acknowledged: f.u64(120),
            received: f.u64(128),
            sent: f.u64(200),
            segments: u64::from(f.u32(136)) + u64::from(f.u32(140)),
            data_segments: f.u32(152).into(),
            out_of_order: f.u32(224),
            receiver_rtt: f.micros(92),
            since_ack: f.millis(56),
            since_data: f.millis(52),
            offered: f.u32(232),
            busy: f.long_micros(168),
            receiver_limited: f.long_micros(176),
            send_buffer_limited: f.long_micros(184),
            // These are TIME_WAIT (6) and later states except LISTEN and NEW_SYN_RECV: include/net/tcp_states.h.
            peer_has_ended: matches!(bytes.first(), Some(6..=9 | 11)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    #[test]
    fn the_kernels_counters_are_read_at_their_offsets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 5000]).unwrap();
        far.read_exact(&mut [0; 5000]).unwrap();
        far.write_all(&[7; 300]).unwrap();
        near.read_exact(&mut [0; 300]).unwrap();

        let info = TcpInfo::of(&near).unwrap();
        // The SYN counts as one acknowledged byte. The acknowledgement came with the far end's data.
        assert_eq!(info.acknowledged, 5001);
        assert_eq!((info.received, info.sent), (300, 5000));
        // There are three segments of the handshake, and at least one with data from each end.
        assert!(info.segments >= 5, "{info:?}");
        assert!(info.rtt > Duration::ZERO && info.min_rtt <= info.rtt * 2, "{info:?}");
        assert!(info.cwnd >= 2 && info.mss >= 536, "{info:?}");
        assert!(info.delivery_rate > Rate::ZERO && !info.peer_has_ended, "{info:?}");
        assert_eq!((info.unacknowledged, info.unsent, info.retransmitted), (0, 0, 0));
        drop(far);
        assert_eq!(near.read(&mut [0; 1]).unwrap(), 0);
        assert!(TcpInfo::of(&near).unwrap().peer_has_ended);
    }

    #[test]
    fn a_reader_that_does_not_read_shows_as_receiver_limited_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        while near.write(&[7; 65536]).is_ok() {}
        // The kernel counts in jiffies, so the loop waits until the first has passed.
        let info = loop {
            let info = TcpInfo::of(&near).unwrap();
            if info.receiver_limited > Duration::ZERO {
                break info;
            }
            std::thread::yield_now();
        };
        assert!(info.busy >= info.receiver_limited, "{info:?}");
        assert!(info.unsent > 0, "{info:?}");
    }

    #[test]
    fn a_short_reading_of_an_old_kernel_leaves_zeros() {
        let info = TcpInfo::parse(&[1; 100]);
        assert_eq!(info.cwnd, 0x0101_0101);
        assert_eq!((info.acknowledged, info.busy), (0, Duration::ZERO));
        assert_eq!(TcpInfo::parse(&[]), TcpInfo::default());
    }
}
