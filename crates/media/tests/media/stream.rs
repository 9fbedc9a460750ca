//! Builds transport streams packet by packet, and checks outgoing ones.

use std::collections::BTreeMap;

pub type Packet = [u8; 188];

pub const PAT: u16 = 0;
pub const PMT: u16 = 0x1000;
pub const VIDEO: u16 = 0x100;

/// The packets of a stream.
pub fn packets(bytes: &[u8]) -> Vec<Packet> {
    assert_eq!(bytes.len() % 188, 0);
    bytes.as_chunks().0.to_vec()
}

pub fn pid(packet: &Packet) -> u16 {
    u16::from(packet[1] & 0x1f) << 8 | u16::from(packet[2])
}

pub fn set_pid(packet: &mut Packet, pid: u16) {
    packet[1] = packet[1] & 0xe0 | (pid >> 8) as u8;
    packet[2] = pid as u8;
}

pub fn is_start(packet: &Packet) -> bool {
    packet[1] & 0x40 != 0
}

pub fn has_payload(packet: &Packet) -> bool {
    packet[3] & 0x10 != 0
}

fn payload_at(packet: &Packet) -> usize {
    if packet[3] & 0x20 == 0 { 4 } else { 5 + usize::from(packet[4]) }
}

/// The base of a packet's clock reference.
pub fn clock(packet: &Packet) -> Option<u64> {
    let is_there = packet[3] & 0x20 != 0 && packet[4] >= 7 && packet[5] & 0x10 != 0;
    let base = u32::from_be_bytes([packet[6], packet[7], packet[8], packet[9]]);
    is_there.then(|| u64::from(base) << 1 | u64::from(packet[10] >> 7))
}

/// Adds ticks of 90 kHz to all clocks and times of a stream.
pub fn shift(packets: &mut [Packet], by: i64) {
    for packet in packets {
        if let Some(clock) = clock(packet) {
            let base = shifted(clock, by);
            packet[6..10].copy_from_slice(&((base >> 1) as u32).to_be_bytes());
            packet[10] = packet[10] & 0x7f | ((base & 1) as u8) << 7;
        }
        let at = payload_at(packet);
        let is_pes = is_start(packet) && packet.get(at..at + 3) == Some(&[0, 0, 1]);
        if !has_payload(packet) || !is_pes {
            continue;
        }
        let times = [(0x80, at + 9), (0x40, at + 14)];
        let flags = packet[at + 7];
        for (_, at) in times.into_iter().filter(|(flag, _)| flags & flag != 0) {
            let stamp = stamp(&packet[at..]);
            put_stamp(&mut packet[at..at + 5], shifted(stamp, by));
        }
    }
}

fn shifted(ticks: u64, by: i64) -> u64 {
    (ticks as i64 + by).rem_euclid(1 << 33) as u64
}

fn stamp(bytes: &[u8]) -> u64 {
    let bits = |byte: u8, from: u8| u64::from(byte >> from);
    (bits(bytes[0], 1) & 7) << 30
        | bits(bytes[1], 0) << 22
        | bits(bytes[2], 1) << 15
        | bits(bytes[3], 0) << 7
        | bits(bytes[4], 1)
}

fn put_stamp(into: &mut [u8], ticks: u64) {
    into[0] = into[0] & 0xf0 | ((ticks >> 30 & 7) as u8) << 1 | 1;
    into[1] = (ticks >> 22) as u8;
    into[2] = ((ticks >> 15 & 0x7f) as u8) << 1 | 1;
    into[3] = (ticks >> 7) as u8;
    into[4] = ((ticks & 0x7f) as u8) << 1 | 1;
}

/// A program's number, the PID of its PMT, and its streams: type and PID.
pub type Program<'a> = (u16, u16, &'a [(u8, u16)]);

/// Builds a stream packet by packet.
#[derive(Default)]
pub struct TransportBuilder {
    pub packets: Vec<Packet>,
    counters: BTreeMap<u16, u8>,
}

impl TransportBuilder {
    /// Adds a PAT with these programs and a PMT for each of them.
    pub fn tables(&mut self, programs: &[Program<'_>]) {
        let entries = programs.iter().flat_map(|(number, pid, _)| {
            [number.to_be_bytes(), (0xe000 | pid).to_be_bytes()].concat()
        });
        self.section(PAT, &section(0, 1, &entries.collect::<Vec<u8>>()));
        for (number, pid, streams) in programs {
            let mut body = vec![0xe1, 0x00, 0xf0, 0];
            for (kind, stream) in *streams {
                body.push(*kind);
                body.extend((0xe000 | stream).to_be_bytes());
                body.extend([0xf0, 0]);
            }
            self.section(*pid, &section(2, *number, &body));
        }
    }

    pub fn section(&mut self, pid: u16, section: &[u8]) {
        let mut bytes = vec![0];
        bytes.extend_from_slice(section);
        while bytes.len() % 184 != 0 {
            bytes.push(0xff);
        }
        self.cut(pid, &bytes);
    }

    /// Adds a PES packet of a video with this DTS and PTS, ticks.
    pub fn picture(&mut self, pid: u16, at: u64, nals: &[&[u8]]) {
        let mut pes = vec![0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5, 0x20, 0, 0, 0, 0];
        put_stamp(&mut pes[9..14], at);
        nals.iter().for_each(|nal| pes.extend([&[0, 0, 0, 1], *nal].concat()));
        self.cut(pid, &pes);
    }

    /// Adds the bytes as packets of this PID. The adaptation field of the last one has the stuffing.
    fn cut(&mut self, pid: u16, bytes: &[u8]) {
        for (number, piece) in bytes.chunks(184).enumerate() {
            let mut packet = [0xff; 188];
            let counter = self.counters.entry(pid).or_default();
            packet[..4].copy_from_slice(&[0x47, 0, 0, 0x10 | *counter]);
            set_pid(&mut packet, pid);
            packet[1] |= if number == 0 { 0x40 } else { 0 };
            *counter = (*counter + 1) & 0x0f;
            let fill = 184 - piece.len();
            if fill > 0 {
                packet[3] |= 0x20;
                packet[4] = (fill - 1) as u8;
                if fill > 1 {
                    packet[5] = 0;
                }
            }
            packet[4 + fill..].copy_from_slice(piece);
            self.packets.push(packet);
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.packets.as_flattened().to_vec()
    }
}

/// A section with the long header and its checksum.
pub fn section(table: u8, id: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![table];
    bytes.extend((0xb000 | (body.len() + 9) as u16).to_be_bytes());
    bytes.extend(id.to_be_bytes());
    bytes.extend([0xc1, 0, 0]);
    bytes.extend_from_slice(body);
    bytes.extend(checksum(&bytes).to_be_bytes());
    bytes
}

pub fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte) << 24;
        for _ in 0..8 {
            sum = sum << 1 ^ if sum >> 31 == 1 { 0x04c1_1db7 } else { 0 };
        }
    }
    sum
}

/// Checks an outgoing stream: complete packets, continuity counters without gaps, and increasing clocks.
pub fn check_transport(bytes: &[u8]) {
    let mut counters: BTreeMap<u16, u8> = BTreeMap::new();
    let mut clocks: BTreeMap<u16, u64> = BTreeMap::new();
    for (number, packet) in packets(bytes).iter().enumerate() {
        assert_eq!(packet[0], 0x47, "packet {number}");
        let pid = pid(packet);
        let counter = packet[3] & 0x0f;
        let last = counters.insert(pid, counter);
        let expected = last.map(|last| (last + u8::from(has_payload(packet))) & 0x0f);
        assert!(expected.is_none_or(|expected| expected == counter), "packet {number}, PID {pid}");
        if let Some(clock) = clock(packet) {
            let last = clocks.insert(pid, clock);
            assert!(last.is_none_or(|last| last <= clock), "packet {number}: {last:?}, {clock}");
        }
    }
}
