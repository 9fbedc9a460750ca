//! Program tables (ISO/IEC 13818-1, 2.4.4): sections, PAT and PMT.

use crate::packet::{self, Continuity, ContinuityCounter, Packet, read_u16};
use std::collections::{BTreeMap, BTreeSet};

/// The PID of the program association table.
pub(crate) const PAT_PID: u16 = 0;

/// The maximum number of programs of a stream that has been split already.
pub(crate) const MAX_PROGRAMS: usize = 64;

/// The maximum size of a section, bytes.
const MAX_SECTION: usize = 4096;

/// The maximum number of sections of a PAT; each has up to 253 programs.
const MAX_PAT_SECTIONS: u8 = 16;

/// The coding of an elementary stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// H.264.
    H264,
    /// H.265.
    H265,
    /// Other video, with its `stream_type`.
    OtherVideo(u8),
    /// AAC in ADTS.
    Aac,
    /// Other audio, with its `stream_type`.
    OtherAudio(u8),
    /// Anything else, with its `stream_type`.
    Data(u8),
}

impl Codec {
    /// Determines the codec by `stream_type` (table 2-34; ATSC A/52, A/53), for private data by descriptors (ETSI EN
    /// 300 468).
    pub(crate) fn from_stream_type(kind: u8, descriptors: &[u8]) -> Self {
        match kind {
            0x1b => Self::H264,
            0x24 | 0x25 => Self::H265,
            0x01 | 0x02 | 0x10 | 0x21 | 0x33 | 0x42 | 0xd1 | 0xea => Self::OtherVideo(kind),
            0x0f => Self::Aac,
            0x03 | 0x04 | 0x11 | 0x1c | 0x80..=0x85 | 0x87 | 0x8a => Self::OtherAudio(kind),
            0x06 => Self::from_private_descriptors(descriptors),
            _ => Self::Data(kind),
        }
    }

    fn from_private_descriptors(descriptors: &[u8]) -> Self {
        for (tag, body) in Descriptors(descriptors) {
            match (tag, body) {
                (0x05, [b'H', b'E', b'V', b'C', ..]) => return Self::H265,
                (0x05, [b'O', b'p', b'u', b's', ..]) | (0x6a | 0x7a | 0x7b | 0x7c, _) => {
                    return Self::OtherAudio(0x06);
                }
                _ => {}
            }
        }
        Self::Data(0x06)
    }

    /// The `stream_type` of a video; `None` for anything else.
    pub(crate) fn video_type(self) -> Option<u8> {
        match self {
            Self::H264 => Some(0x1b),
            Self::H265 => Some(0x24),
            Self::OtherVideo(kind) => Some(kind),
            Self::Aac | Self::OtherAudio(_) | Self::Data(_) => None,
        }
    }

    /// Whether it is video.
    pub fn is_video(self) -> bool {
        matches!(self, Self::H264 | Self::H265 | Self::OtherVideo(_))
    }

    /// Whether it is audio.
    pub fn is_audio(self) -> bool {
        matches!(self, Self::Aac | Self::OtherAudio(_))
    }
}

/// Iterates over the tags and bodies of descriptors (2.6.1).
struct Descriptors<'a>(&'a [u8]);

impl<'a> Iterator for Descriptors<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (head, rest) = self.0.split_first_chunk::<2>()?;
        let (body, rest) = rest.split_at_checked(usize::from(head[1]))?;
        self.0 = rest;
        Some((head[0], body))
    }
}

/// Assembles the sections of one PID.
#[derive(Clone, Debug, Default)]
pub(crate) struct SectionReader {
    bytes: Vec<u8>,
    is_open: bool,
    counter: ContinuityCounter,
}

impl SectionReader {
    /// Adds a packet. Returns the sections that it completes.
    pub(crate) fn push(&mut self, packet: Packet<'_>) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        match self.counter.check(packet) {
            Continuity::Follows => {}
            Continuity::Repeated => return found,
            Continuity::Gap => self.close(),
        }
        let payload = packet.payload();
        if !packet.is_start() {
            self.append(payload, &mut found);
            return found;
        }
        let Some((pointer, rest)) = payload.split_first() else { return found };
        let Some((end, start)) = rest.split_at_checked(usize::from(*pointer)) else {
            self.close();
            return found;
        };
        self.append(end, &mut found);
        self.close();
        self.is_open = true;
        self.append(start, &mut found);
        found
    }

    fn close(&mut self) {
        self.is_open = false;
        self.bytes.clear();
    }

    fn append(&mut self, bytes: &[u8], found: &mut Vec<Vec<u8>>) {
        if !self.is_open {
            return;
        }
        self.bytes.extend_from_slice(bytes);
        while let Some(head) = self.bytes.first_chunk::<3>() {
            let length = 3 + usize::from(read_u16(&head[1..]) & 0x0fff);
            // Stuffing follows the last section.
            if head[0] == 0xff || length > MAX_SECTION {
                return self.close();
            }
            if self.bytes.len() < length {
                return;
            }
            found.push(self.bytes.drain(..length).collect());
        }
    }
}

/// A section with the long header (2.4.4.1) and a valid checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'a> {
    table: u8,
    /// The transport stream of a PAT; the program of a PMT.
    id: u16,
    version: u8,
    is_current: bool,
    number: u8,
    last: u8,
    body: &'a [u8],
}

/// The section is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadSection;

impl<'a> Section<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, BadSection> {
        let head: &[u8; 8] = bytes.first_chunk().ok_or(BadSection)?;
        let end = bytes.len().checked_sub(4).filter(|end| *end >= 8).ok_or(BadSection)?;
        if head[1] & 0x80 == 0 || checksum(bytes) != 0 {
            return Err(BadSection);
        }
        Ok(Self {
            table: head[0],
            id: read_u16(&head[3..]),
            version: head[5] >> 1 & 0x1f,
            is_current: head[5] & 1 != 0,
            number: head[6],
            last: head[7],
            body: &bytes[8..end],
        })
    }
}

/// CRC-32 of annex A; 0 over a section that includes its checksum.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte) << 24, |sum, _| {
            let is_odd = sum & 0x8000_0000 != 0;
            sum << 1 ^ if is_odd { 0x04c1_1db7 } else { 0 }
        })
    })
}

/// An elementary stream of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StreamEntry {
    pub(crate) kind: u8,
    pub(crate) pid: u16,
    pub(crate) descriptors: Vec<u8>,
}

impl StreamEntry {
    pub(crate) fn codec(&self) -> Codec {
        Codec::from_stream_type(self.kind, &self.descriptors)
    }
}

/// A program map (2.4.4.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pmt {
    pub(crate) clock_pid: u16,
    pub(crate) descriptors: Vec<u8>,
    pub(crate) streams: Vec<StreamEntry>,
}

impl Pmt {
    fn read(body: &[u8]) -> Option<Self> {
        let (head, rest) = body.split_first_chunk::<4>()?;
        let (descriptors, mut rest) =
            rest.split_at_checked(usize::from(read_u16(&head[2..]) & 0x0fff))?;
        let mut streams = Vec::new();
        while let Some((head, more)) = rest.split_first_chunk::<5>() {
            let length = usize::from(read_u16(&head[3..]) & 0x0fff);
            let (descriptors, more) = more.split_at_checked(length)?;
            let descriptors = descriptors.to_vec();
            streams.push(StreamEntry {
                kind: head[0],
                pid: read_u16(&head[1..]) & 0x1fff,
                descriptors,
            });
            rest = more;
        }
        let clock_pid = read_u16(head) & 0x1fff;
        Some(Self { clock_pid, descriptors: descriptors.to_vec(), streams })
    }

    /// Encodes the section of this program; `None` if it exceeds the maximum size of a PMT section.
    pub(crate) fn section(&self, program: u16, version: u8) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        body.extend((0xe000 | self.clock_pid).to_be_bytes());
        put_descriptors(&mut body, &self.descriptors);
        for stream in &self.streams {
            body.push(stream.kind);
            body.extend((0xe000 | stream.pid).to_be_bytes());
            put_descriptors(&mut body, &stream.descriptors);
        }
        build_section(0x02, program, version, &body)
    }
}

fn put_descriptors(into: &mut Vec<u8>, descriptors: &[u8]) {
    into.extend((0xf000 | descriptors.len() as u16).to_be_bytes());
    into.extend_from_slice(descriptors);
}

/// Encodes a PAT with one program.
pub(crate) fn pat_section(program: u16, pmt_pid: u16, version: u8) -> Option<Vec<u8>> {
    let [a, b] = program.to_be_bytes();
    let [c, d] = (0xe000 | pmt_pid).to_be_bytes();
    build_section(0x00, 1, version, &[a, b, c, d])
}

fn build_section(table: u8, id: u16, version: u8, body: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(body.len() + 9).ok().filter(|length| *length <= 1021)?;
    let mut bytes = vec![table];
    bytes.extend((0xb000 | length).to_be_bytes());
    bytes.extend(id.to_be_bytes());
    bytes.extend([0xc1 | (version & 0x1f) << 1, 0, 0]);
    bytes.extend_from_slice(body);
    bytes.extend(checksum(&bytes).to_be_bytes());
    Some(bytes)
}

/// A program of the PAT.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) number: u16,
    pub(crate) pmt_pid: u16,
    pub(crate) pmt: Option<Pmt>,
    /// The section of the PMT as received.
    section: Vec<u8>,
}

impl Program {
    /// The section of the PMT as received; empty before that.
    pub(crate) fn section(&self) -> &[u8] {
        &self.section
    }

    /// The version of the PMT; 0 before it is received.
    pub(crate) fn version(&self) -> u8 {
        Section::read(&self.section).map_or(0, |section| section.version)
    }
}

/// The effect of a packet of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableChange {
    pub(crate) has_changed: bool,
    pub(crate) is_damaged: bool,
    /// Whether there are more programs than the maximum.
    pub(crate) has_too_many: bool,
}

/// The programs of a stream, read from its PAT and PMTs.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    max: usize,
    pat: SectionReader,
    /// The sections of the newest PAT, complete or not.
    pat_sections: BTreeMap<u8, Vec<u8>>,
    pmts: BTreeMap<u16, SectionReader>,
    /// In the PAT's order.
    programs: Vec<Program>,
}

impl Programs {
    /// Creates an empty list of at most `max` programs.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            pat: SectionReader::default(),
            pat_sections: BTreeMap::new(),
            pmts: BTreeMap::new(),
            programs: Vec::new(),
        }
    }

    /// Whether this PID carries the PAT or a PMT.
    pub(crate) fn is_table(&self, pid: u16) -> bool {
        pid == PAT_PID || self.pmts.contains_key(&pid)
    }

    pub(crate) fn all(&self) -> &[Program] {
        &self.programs
    }

    /// Finds a program with this elementary stream, and its entry.
    pub(crate) fn find_stream(&self, pid: u16) -> Option<(&Program, &Pmt, &StreamEntry)> {
        self.programs.iter().find_map(|program| {
            let pmt = program.pmt.as_ref()?;
            let entry = pmt.streams.iter().find(|entry| entry.pid == pid)?;
            Some((program, pmt, entry))
        })
    }

    /// Whether all programs of the PAT have a PMT.
    pub(crate) fn is_complete(&self) -> bool {
        !self.programs.is_empty() && self.programs.iter().all(|program| program.pmt.is_some())
    }

    /// Counts the videos of all programs.
    pub(crate) fn count_videos(&self) -> usize {
        let maps = self.all().iter().flat_map(|program| &program.pmt);
        let videos = maps.flat_map(|pmt| &pmt.streams).filter(|entry| entry.codec().is_video());
        videos.map(|entry| entry.pid).collect::<BTreeSet<_>>().len()
    }

    /// The version of the newest PAT; 0 before it is received.
    pub(crate) fn pat_version(&self) -> u8 {
        let first = self.pat_sections.values().next();
        first.and_then(|bytes| Section::read(bytes).ok()).map_or(0, |section| section.version)
    }

    /// The newest PAT and PMTs as packets whose continuity counters are 0.
    pub(crate) fn packets(&self) -> Vec<packet::RawPacket> {
        let pat = self.pat_sections.values().map(|section| (PAT_PID, section));
        let pmts = self.programs.iter().map(|program| (program.pmt_pid, &program.section));
        pat.chain(pmts)
            .filter(|(_, section)| !section.is_empty())
            .flat_map(|(pid, section)| packet::packetize_section(pid, section))
            .collect()
    }

    pub(crate) fn push(&mut self, packet: Packet<'_>) -> TableChange {
        let mut changed = TableChange::default();
        let pid = packet.pid();
        let reader = if pid == PAT_PID { Some(&mut self.pat) } else { self.pmts.get_mut(&pid) };
        let sections = reader.map(|reader| reader.push(packet)).unwrap_or_default();
        for bytes in sections {
            match Section::read(&bytes) {
                Ok(section) if !section.is_current => {}
                Ok(section) if pid == PAT_PID && section.table == 0x00 => {
                    self.read_pat(section, &bytes, &mut changed);
                }
                Ok(section) if pid != PAT_PID && section.table == 0x02 => {
                    self.read_pmt(pid, section, &bytes, &mut changed);
                }
                Ok(_) => {}
                Err(BadSection) => changed.is_damaged = true,
            }
        }
        changed
    }

    fn read_pat(&mut self, section: Section<'_>, bytes: &[u8], changed: &mut TableChange) {
        if section.number > section.last || section.last >= MAX_PAT_SECTIONS {
            changed.is_damaged = true;
            return;
        }
        if self.pat_sections.get(&section.number).is_some_and(|known| known == bytes) {
            return;
        }
        let is_same_table = |known: &Vec<u8>| {
            let known = Section::read(known).ok();
            let key = |section: Section<'_>| (section.id, section.version, section.last);
            known.is_some_and(|known| key(known) == key(section) && known.number != section.number)
        };
        if !self.pat_sections.values().all(is_same_table) {
            self.pat_sections.clear();
        }
        self.pat_sections.insert(section.number, bytes.to_vec());
        if self.pat_sections.len() == usize::from(section.last) + 1 {
            self.adopt_pat(changed);
        }
    }

    /// Adopts the programs of a complete PAT.
    fn adopt_pat(&mut self, changed: &mut TableChange) {
        let mut programs: Vec<Program> = Vec::new();
        let bodies = self.pat_sections.values().filter_map(|bytes| Section::read(bytes).ok());
        for entry in bodies.flat_map(|section| section.body.as_chunks::<4>().0) {
            let (number, pmt_pid) = (read_u16(entry), read_u16(&entry[2..]) & 0x1fff);
            let is_invalid = number == 0 || !(0x10..packet::NULL_PID).contains(&pmt_pid);
            if is_invalid || programs.iter().any(|known| known.number == number) {
                continue;
            }
            if programs.len() >= self.max {
                changed.has_too_many = true;
                break;
            }
            let known =
                self.programs.iter().find(|old| old.number == number && old.pmt_pid == pmt_pid);
            let new = Program { number, pmt_pid, ..Program::default() };
            programs.push(known.cloned().unwrap_or(new));
        }
        self.programs = programs;
        let pids: Vec<u16> = self.programs.iter().map(|program| program.pmt_pid).collect();
        self.pmts.retain(|pid, _| pids.contains(pid));
        for pid in pids {
            self.pmts.entry(pid).or_default();
        }
        changed.has_changed = true;
    }

    fn read_pmt(
        &mut self,
        pid: u16,
        section: Section<'_>,
        bytes: &[u8],
        changed: &mut TableChange,
    ) {
        let is_own =
            |program: &&mut Program| program.number == section.id && program.pmt_pid == pid;
        let Some(program) = self.programs.iter_mut().find(is_own) else { return };
        if program.section == bytes {
            return;
        }
        let Some(pmt) = Pmt::read(section.body) else {
            changed.is_damaged = true;
            return;
        };
        program.pmt = Some(pmt);
        program.section = bytes.to_vec();
        changed.has_changed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u8, pid: u16) -> StreamEntry {
        StreamEntry { kind, pid, descriptors: Vec::new() }
    }

    /// Pushes the packets of a section with continuity counters from `first`.
    fn push(programs: &mut Programs, pid: u16, section: &[u8], first: u8) -> TableChange {
        let mut all = TableChange::default();
        for (number, mut packet) in (0..).zip(packet::packetize_section(pid, section)) {
            packet[3] |= (first + number) & 0x0f;
            let changed = programs.push(Packet(&packet));
            all.has_changed |= changed.has_changed;
            all.is_damaged |= changed.is_damaged;
            all.has_too_many |= changed.has_too_many;
        }
        all
    }

    /// Section `number` of `last` of a PAT.
    fn pat(version: u8, programs: &[(u16, u16)], number: u8, last: u8) -> Vec<u8> {
        let body: Vec<u8> = programs
            .iter()
            .flat_map(|(program, pid)| [program.to_be_bytes(), (0xe000 | pid).to_be_bytes()])
            .flatten()
            .collect();
        let mut bytes = build_section(0, 1, version, &body).expect("short");
        let end = bytes.len() - 4;
        bytes[6..8].copy_from_slice(&[number, last]);
        bytes.truncate(end);
        bytes.extend(checksum(&bytes).to_be_bytes());
        bytes
    }

    #[test]
    fn a_pat_in_several_sections_is_used_when_it_is_complete() {
        let mut programs = Programs::new(4);
        assert!(!push(&mut programs, 0, &pat(1, &[(1, 0x20), (2, 0x21)], 0, 1), 0).has_changed);
        assert!(programs.all().is_empty());
        assert!(push(&mut programs, 0, &pat(1, &[(3, 0x22)], 1, 1), 1).has_changed);
        let numbers = |of: &Programs| of.all().iter().map(|p| p.number).collect::<Vec<_>>();
        assert_eq!(numbers(&programs), [1, 2, 3]);
        // The same again changes nothing; a new version does.
        assert!(!push(&mut programs, 0, &pat(1, &[(3, 0x22)], 1, 1), 2).has_changed);
        assert!(push(&mut programs, 0, &pat(2, &[(9, 0x29)], 0, 0), 3).has_changed);
        assert_eq!(numbers(&programs), [9]);
        let many: Vec<_> = (1..=5).map(|n| (n, 0x30 + n)).collect();
        assert!(push(&mut programs, 0, &pat(3, &many, 0, 0), 4).has_too_many);
        assert_eq!(programs.all().len(), 4);
    }

    #[test]
    fn a_pmt_longer_than_a_packet_is_read_and_written() {
        let mut programs = Programs::new(4);
        push(&mut programs, 0, &pat(1, &[(7, 0x20)], 0, 0), 0);
        let mut streams: Vec<StreamEntry> = (0..60).map(|n| entry(0x1b, 0x100 + n)).collect();
        streams[3].descriptors = vec![0x0a, 4, b'd', b'e', b'u', 0];
        let pmt = Pmt { clock_pid: 0x100, descriptors: vec![0x05, 0], streams };
        let section = pmt.section(7, 3).expect("it fits");
        assert!(section.len() > crate::PACKET);
        assert!(push(&mut programs, 0x20, &section, 0).has_changed);
        assert_eq!(programs.all()[0].pmt.as_ref(), Some(&pmt));
        let again: Vec<u8> =
            programs.packets()[1..].iter().flat_map(|p| Packet(p).payload()).copied().collect();
        assert_eq!(again[1..=section.len()], section);
        // A section with a gap is dropped, and a damaged one is reported.
        let mut packets = packet::packetize_section(0x20, &pmt.section(7, 4).expect("it fits"));
        packets[0][3] |= 2;
        packets[1][3] |= 4;
        let changed: Vec<_> = packets[..2].iter().map(|p| programs.push(Packet(p))).collect();
        assert!(changed.iter().all(|changed| *changed == TableChange::default()));
        let mut damaged = pmt.section(7, 5).expect("it fits");
        damaged[20] ^= 1;
        let changed = push(&mut programs, 0x20, &damaged, 5);
        assert!(changed.is_damaged && !changed.has_changed);
    }

    #[test]
    fn codecs_are_known_by_type_and_descriptor() {
        assert_eq!(Codec::from_stream_type(0x1b, &[]), Codec::H264);
        assert_eq!(Codec::from_stream_type(0x06, b"\x05\x04Opus"), Codec::OtherAudio(0x06));
        assert_eq!(
            Codec::from_stream_type(0x06, b"\x0a\x02de\x6a\x01\x00"),
            Codec::OtherAudio(0x06)
        );
        assert_eq!(Codec::from_stream_type(0x06, b"\x05\x40Op"), Codec::Data(0x06));
        assert_eq!(Codec::from_stream_type(0x86, b"\x05\x04CUEI"), Codec::Data(0x86));
    }
}
