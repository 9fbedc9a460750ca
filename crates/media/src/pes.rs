//! PES packets (ISO/IEC 13818-1, 2.4.3.6).

use crate::{
    PACKET,
    packet::{Packet, read_u16},
};

/// The bytes that `PES_packet_length` does not count.
pub(crate) const HEADER: usize = 6;

/// The header of a PES packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PesHeader {
    pub(crate) pts: Option<u64>,
    pub(crate) dts: Option<u64>,
    /// The size of the PES packet, bytes; `None`: it ends where the next one starts.
    pub(crate) length: Option<usize>,
    /// The offset of the elementary stream's bytes.
    pub(crate) body: usize,
}

impl PesHeader {
    /// Reads the header; `None` if the bytes do not start with a complete one.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let head: &[u8; HEADER] = bytes.first_chunk()?;
        if head[..3] != [0, 0, 1] || head[3] < 0xbc {
            return None;
        }
        let length = match usize::from(read_u16(&head[4..])) {
            0 => None,
            length => Some(HEADER + length),
        };
        // Program stream maps, padding and private stream 2 have no further header.
        if matches!(head[3], 0xbc | 0xbe | 0xbf | 0xf0..=0xf2 | 0xf8 | 0xff) {
            return Some(Self { pts: None, dts: None, length, body: HEADER });
        }
        let [flags, times, more]: [u8; 3] = *bytes[HEADER..].first_chunk()?;
        if flags & 0xc0 != 0x80 {
            return None;
        }
        let stamp = |at: usize| bytes.get(at..at + 5).and_then(read_timestamp);
        let pts = (times & 0x80 != 0 && more >= 5).then(|| stamp(9)).flatten();
        let dts = (times & 0xc0 == 0xc0 && more >= 10).then(|| stamp(14)).flatten();
        Some(Self { pts, dts: dts.or(pts), length, body: HEADER + 3 + usize::from(more) })
    }

    /// Reads the header of the unit that starts in these packets.
    pub(crate) fn from_packets(packets: &[u8]) -> Option<Self> {
        let (packets, _) = packets.as_chunks::<PACKET>();
        let first = packets.iter().map(Packet).find(|packet| packet.has_payload())?;
        Self::read(first.payload()).filter(|_| first.is_start())
    }
}

fn read_timestamp(bytes: &[u8]) -> Option<u64> {
    let [a, b, c, d, e] = *bytes.first_chunk::<5>()?;
    let high = u64::from(a >> 1 & 7) << 30;
    let middle = u64::from(u16::from_be_bytes([b, c]) >> 1) << 15;
    Some(high | middle | u64::from(u16::from_be_bytes([d, e]) >> 1))
}

/// The concatenated payloads of packets.
pub(crate) fn payload(packets: &[u8]) -> Vec<u8> {
    let (packets, _) = packets.as_chunks::<PACKET>();
    packets.iter().flat_map(|packet| Packet(packet).payload()).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read() {
        let mut bytes = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0xc0, 10];
        bytes.extend([0x31, 0x00, 0x07, 0xd8, 0x61, 0x1f, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]);
        let head = PesHeader::read(&bytes).expect("right");
        assert_eq!((head.pts, head.length, head.body), (Some(126_000), None, 19));
        assert_eq!(head.dts, Some((1 << 33) - 1));
        assert_eq!(PesHeader::read(&bytes[1..]), None);
        assert_eq!(PesHeader::read(&bytes[..7]), None);
        let padding = PesHeader::read(&[0, 0, 1, 0xbe, 0, 4]).expect("right");
        assert_eq!((padding.length, padding.body, padding.pts), (Some(10), 6, None));
    }
}
