//! Packets of a transport stream (ISO/IEC 13818-1, 2.4.3).

/// The size of a transport stream packet, bytes (ISO/IEC 13818-1, 2.4.3.2).
pub const PACKET: usize = 188;

/// The sync byte, first in each packet.
pub(crate) const SYNC: u8 = 0x47;

/// The PID of null packets.
pub(crate) const NULL_PID: u16 = 0x1fff;

/// The bytes of a packet.
pub(crate) type RawPacket = [u8; PACKET];

/// A view of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a>(pub(crate) &'a RawPacket);

impl<'a> Packet<'a> {
    pub(crate) fn pid(self) -> u16 {
        u16::from(self.0[1] & 0x1f) << 8 | u16::from(self.0[2])
    }

    /// Whether the transport error indicator is set.
    pub(crate) fn has_error(self) -> bool {
        self.0[1] & 0x80 != 0
    }

    /// Whether a PES packet or a section starts in it.
    pub(crate) fn is_start(self) -> bool {
        self.0[1] & 0x40 != 0
    }

    pub(crate) fn is_scrambled(self) -> bool {
        self.0[3] & 0xc0 != 0
    }

    pub(crate) fn counter(self) -> u8 {
        self.0[3] & 0x0f
    }

    pub(crate) fn has_payload(self) -> bool {
        self.0[3] & 0x10 != 0
    }

    /// The payload; empty if there is none or the adaptation field exceeds the packet.
    pub(crate) fn payload(self) -> &'a [u8] {
        let start = if self.0[3] & 0x20 == 0 { 4 } else { 5 + usize::from(self.0[4]) };
        let payload = if self.has_payload() { self.0.get(start..) } else { None };
        payload.unwrap_or_default()
    }

    /// The flags of the adaptation field; 0 if there is none.
    fn flags(self) -> u8 {
        if self.0[3] & 0x20 != 0 && self.0[4] > 0 { self.0[5] } else { 0 }
    }

    pub(crate) fn is_discontinuous(self) -> bool {
        self.flags() & 0x80 != 0
    }

    /// Whether the random access indicator is set.
    pub(crate) fn is_random_access(self) -> bool {
        self.flags() & 0x40 != 0
    }
}

/// The number in the first two bytes; 0 if they are fewer.
pub(crate) fn read_u16(bytes: &[u8]) -> u16 {
    bytes.first_chunk().map_or(0, |word| u16::from_be_bytes(*word))
}

/// The relation of a packet to the previous one of its PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Continuity {
    Follows,
    /// A duplicate (2.4.3.3).
    Repeated,
    /// Packets are missing in between.
    Gap,
}

/// Compares a packet with the previous one of its PID.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContinuityCounter(Option<Box<RawPacket>>);

impl ContinuityCounter {
    pub(crate) fn check(&mut self, packet: Packet<'_>) -> Continuity {
        if !packet.has_payload() {
            return Continuity::Follows;
        }
        let Some(last) = &mut self.0 else {
            self.0 = Some(Box::new(*packet.0));
            return Continuity::Follows;
        };
        let newest = Packet(last);
        let continuity = match packet.counter().wrapping_sub(newest.counter()) & 0x0f {
            _ if packet.is_discontinuous() => Continuity::Follows,
            1 => Continuity::Follows,
            // A repetition may have another PCR.
            0 if newest.payload() == packet.payload() => Continuity::Repeated,
            _ => Continuity::Gap,
        };
        **last = *packet.0;
        continuity
    }
}

/// Splits a section into packets (2.4.4) whose continuity counters are 0.
pub(crate) fn packetize_section(pid: u16, section: &[u8]) -> Vec<RawPacket> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(section);
    let filled = |(number, piece): (usize, &[u8])| {
        let mut packet = [0xff; PACKET];
        packet[..4].copy_from_slice(&header(pid, number == 0, 0x10));
        packet[4..4 + piece.len()].copy_from_slice(piece);
        packet
    };
    bytes.chunks(PACKET - 4).enumerate().map(filled).collect()
}

/// Splits a PES packet into packets whose continuity counters are 0. `field` is the adaptation field of the first one,
/// without its length byte.
pub(crate) fn packetize_pes(pid: u16, field: &[u8], mut pes: &[u8]) -> Vec<RawPacket> {
    let mut packets = Vec::new();
    let mut field = field.to_vec();
    while !pes.is_empty() {
        let taken = if field.is_empty() { 0 } else { 1 + field.len() };
        let room = PACKET - 4 - taken;
        let length = pes.len().min(room);
        add_stuffing(&mut field, room - length);
        let mut packet = [0; PACKET];
        let has_field = length < PACKET - 4;
        packet[..4].copy_from_slice(&header(
            pid,
            packets.is_empty(),
            if has_field { 0x30 } else { 0x10 },
        ));
        if has_field {
            packet[4] = (PACKET - 5 - length) as u8;
            packet[5..5 + field.len()].copy_from_slice(&field);
        }
        packet[PACKET - length..].copy_from_slice(&pes[..length]);
        packets.push(packet);
        pes = &pes[length..];
        field.clear();
    }
    packets
}

/// Lengthens an adaptation field by `count` bytes. If it was empty, they include its length byte.
fn add_stuffing(field: &mut Vec<u8>, count: usize) {
    if count > 0 && field.is_empty() {
        // The first byte is the field's length, the second one its flags.
        field.resize(count - 1, 0xff);
        if let Some(flags) = field.first_mut() {
            *flags = 0;
        }
    } else {
        field.resize(field.len() + count, 0xff);
    }
}

fn header(pid: u16, is_start: bool, control: u8) -> [u8; 4] {
    let [high, low] = pid.to_be_bytes();
    [SYNC, high & 0x1f | if is_start { 0x40 } else { 0 }, low, control]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pes_packet_of_any_length_is_cut_into_packets() {
        for length in 1..600 {
            let pes: Vec<u8> = (0..length).map(|at| (at % 251) as u8 | 1).collect();
            for field in [&[][..], &[0x50, 1, 2, 3, 4, 5, 6]] {
                let packets = packetize_pes(0x100, field, &pes);
                let payload: Vec<u8> =
                    packets.iter().flat_map(|p| Packet(p).payload()).copied().collect();
                assert_eq!(payload, pes);
                assert!(packets.iter().all(|p| Packet(p).pid() == 0x100));
                assert!(Packet(&packets[0]).is_start());
                let clock = crate::clock::clock_packet(&packets[0]);
                assert_eq!(clock.is_some(), !field.is_empty(), "{length}");
                assert!(packets[1..].iter().all(|p| !Packet(p).is_start()));
            }
        }
    }

    #[test]
    fn counters_show_gaps_and_repetitions() {
        let with = |counter: u8, byte: u8| {
            let mut packet = [byte; PACKET];
            packet[..4].copy_from_slice(&header(0x100, false, 0x10 | counter));
            packet
        };
        let mut counter = ContinuityCounter::default();
        let mut check = |packet: RawPacket| counter.check(Packet(&packet));
        assert_eq!(check(with(15, 1)), Continuity::Follows);
        assert_eq!(check(with(0, 2)), Continuity::Follows);
        assert_eq!(check(with(0, 2)), Continuity::Repeated);
        assert_eq!(check(with(0, 3)), Continuity::Gap);
        assert_eq!(check(with(2, 3)), Continuity::Gap);
        let mut alone = with(9, 1);
        alone[3] = 0x29;
        assert_eq!(check(alone), Continuity::Follows);
        assert_eq!(check(with(3, 3)), Continuity::Follows);
    }

    #[test]
    fn an_adaptation_field_that_is_too_long_leaves_no_payload() {
        let mut packet = [0; PACKET];
        packet[..5].copy_from_slice(&[SYNC, 0, 0, 0x30, 255]);
        assert!(Packet(&packet).payload().is_empty());
    }
}
