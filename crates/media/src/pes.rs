//! PES packets (ISO/IEC 13818-1, 2.4.3.6).

use crate::{
    PACKET,
    nal::{NalRole, Syntax, nal_units},
    packet::{self, Packet},
    tables::read_u16,
};
use bytes::Bytes;

/// The bytes that `PES_packet_length` does not count.
const HEADER: usize = 6;

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

/// Inserts parameter sets after the unit's delimiter. Clock references are kept.
pub(crate) fn with_sets(packets: &[u8], syntax: Syntax, sets: &[u8]) -> Bytes {
    let unit = packets.as_chunks::<PACKET>().0;
    let mut pes = payload(packets);
    let (Some(first), Some(head)) = (unit.first(), PesHeader::read(&pes)) else {
        return Bytes::copy_from_slice(packets);
    };
    let at = head.body.min(pes.len());
    let at = at + delimiter_length(&pes[at..], syntax);
    pes.splice(at..at, sets.iter().copied());
    if head.length.is_some() {
        let length = u16::try_from(pes.len() - HEADER).unwrap_or(0);
        pes[4..6].copy_from_slice(&length.to_be_bytes());
    }
    let field = if first[3] & 0x20 == 0 {
        &[]
    } else {
        first.get(5..5 + usize::from(first[4])).unwrap_or_default()
    };
    // The stuffing is replaced.
    let field = &field[..field_length(field)];
    let mut made = packet::packetize_pes(Packet(first).pid(), field, &pes);
    let clocks = unit.iter().enumerate().skip(1);
    for (number, clock) in clocks.filter_map(|(n, p)| Some((n, crate::frame::clock_packet(p)?))) {
        made.insert(number.min(made.len()), clock);
    }
    Bytes::from(made.as_flattened().to_vec())
}

/// The length of an adaptation field without its stuffing. Fields with more than clock references keep theirs.
fn field_length(field: &[u8]) -> usize {
    match field.first() {
        Some(flags) if flags & 0x0f != 0 => field.len(),
        Some(flags) => {
            let clocks = usize::from(flags >> 4 & 1) + usize::from(flags >> 3 & 1);
            field.len().min(1 + 6 * clocks)
        }
        None => 0,
    }
}

/// The length of the access unit delimiter at the start of the body; 0 if there is none.
fn delimiter_length(body: &[u8], syntax: Syntax) -> usize {
    let mut nals = nal_units(body);
    let Some(first) = nals.next().filter(|nal| syntax.role(nal) == NalRole::Delimiter) else {
        return 0;
    };
    first.as_ptr_range().end.addr() - body.as_ptr().addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::packetize_pes;

    /// A PES packet with these times and this body.
    fn pes(length: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 1, 0xe0];
        bytes.extend(length.to_be_bytes());
        bytes.extend([0x80, 0xc0, 10]);
        bytes.extend([0x31, 0x00, 0x07, 0xd8, 0x61, 0x1f, 0xff, 0xff, 0xff, 0xff]);
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn headers_are_read() {
        let bytes = pes(0, &[1, 2, 3]);
        let head = PesHeader::read(&bytes).expect("right");
        assert_eq!((head.pts, head.length, head.body), (Some(126_000), None, 19));
        assert_eq!(head.dts, Some((1 << 33) - 1));
        assert_eq!(PesHeader::read(&bytes[1..]), None);
        assert_eq!(PesHeader::read(&bytes[..7]), None);
        let padding = PesHeader::read(&[0, 0, 1, 0xbe, 0, 4]).expect("right");
        assert_eq!((padding.length, padding.body, padding.pts), (Some(10), 6, None));
    }

    #[test]
    fn parameter_sets_are_inserted_after_the_delimiter() {
        let sets = [0, 0, 0, 1, 0x67, 1, 2, 0, 0, 0, 1, 0x68, 3];
        let picture: Vec<u8> =
            [0, 0, 1, 0x65].into_iter().chain((0..500).map(|n| n as u8 | 1)).collect();
        let body = [&[0, 0, 0, 1, 9, 0x10][..], &picture].concat();
        let clock = [0x50, 1, 2, 3, 4, 5, 6];
        let mut unit = packetize_pes(0x100, &clock, &pes(0, &body));
        unit[1] = packetize_pes(0x100, &clock, &payload(&unit[1])[..176])[0];
        let packets = unit.as_flattened();
        let whole = payload(packets);
        let made = with_sets(packets, Syntax::H264, &sets);
        let again = payload(&made);
        assert_eq!(again[19..25], body[..6]);
        assert_eq!(again[25..25 + sets.len()], sets);
        assert_eq!(again[25 + sets.len()..], whole[25..]);
        let clocks =
            made.as_chunks::<PACKET>().0.iter().filter(|p| crate::frame::clock_packet(p).is_some());
        assert_eq!(clocks.count(), 2);
    }
}
