//! Inserts parameter sets into the units of a video.

use crate::{
    PACKET,
    clock::clock_packet,
    nal::{NalRole, Syntax, nal_units},
    packet::{self, Packet},
    pes::{HEADER, PesHeader, payload},
};
use bytes::Bytes;

/// Inserts parameter sets after the unit's delimiter. Clock references are kept.
pub(crate) fn insert(packets: &[u8], syntax: Syntax, sets: &[u8]) -> Bytes {
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
    for (number, clock) in clocks.filter_map(|(n, p)| Some((n, clock_packet(p)?))) {
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

    #[test]
    fn parameter_sets_are_inserted_after_the_delimiter() {
        let sets = [0, 0, 0, 1, 0x67, 1, 2, 0, 0, 0, 1, 0x68, 3];
        let picture: Vec<u8> =
            [0, 0, 1, 0x65].into_iter().chain((0..500).map(|n| n as u8 | 1)).collect();
        let body = [&[0, 0, 0, 1, 9, 0x10][..], &picture].concat();
        let clock = [0x50, 1, 2, 3, 4, 5, 6];
        let mut header = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0xc0, 10];
        header.extend([0x31, 0x00, 0x07, 0xd8, 0x61, 0x1f, 0xff, 0xff, 0xff, 0xff]);
        let mut unit = packetize_pes(0x100, &clock, &[header, body.clone()].concat());
        unit[1] = packetize_pes(0x100, &clock, &payload(&unit[1])[..176])[0];
        let packets = unit.as_flattened();
        let whole = payload(packets);
        let made = insert(packets, Syntax::H264, &sets);
        let again = payload(&made);
        assert_eq!(again[19..25], body[..6]);
        assert_eq!(again[25..25 + sets.len()], sets);
        assert_eq!(again[25 + sets.len()..], whole[25..]);
        let clocks = made.as_chunks::<PACKET>().0.iter().filter(|p| clock_packet(p).is_some());
        assert_eq!(clocks.count(), 2);
    }
}
