//! MPEG transport streams (ISO/IEC 13818-1) as frames, and back. Pure.
//!
//! ```text
//! bytes ─► packets of 188 ─► PAT, PMT: which PIDs ─► per PID: access units, by PES starts ─► Frame
//! Frame ─► the newest tables before key frames, continuity counters anew ─► bytes
//! ```
//!
//! Pictures are classified by their NAL units: of H.264 by type and `nal_ref_idc` (ISO/IEC 14496-10, 7.4.1), of H.265 by type
//! and temporal layer (ISO/IEC 23008-2, 7.4.2.2). Of other codecs a picture counts as a reference, and as a key frame where the
//! multiplexer marks it for random access: nothing is guessed.

use crate::{
    Chains, Frame, FrameClass,
    container::{SplitError, Splitter},
};
use bytes::{Bytes, BytesMut};
use std::{collections::BTreeMap, time::Duration};
use thalweg_wire::stream::leg::{MAX_FRAME, MAX_TRACKS};
use thiserror::Error;

/// Bytes of a packet (2.4.3.2).
pub const PACKET: usize = 188;

/// The first byte of each.
const SYNC: u8 = 0x47;

/// The packets that only fill.
const NULL: u16 = 0x1fff;

/// The most programs and elementary streams that are followed: renditions of a ladder, each with sounds.
const MOST_PROGRAMS: usize = 16;
const MOST_STREAMS: usize = 64;

/// Without tables after so many bytes the input is no use: two seconds at 20 Mbit/s, where tables come ten times a second.
const NO_TABLES: u64 = 5_000_000;

/// A clock that jumps further than this has begun anew.
const JUMP: i64 = 10 * CLOCK;

/// Ticks of PTS and DTS in a second, and their range (2.4.3.7).
const CLOCK: i64 = 90_000;
const WRAP: i64 = 1 << 33;

/// After a jump the next frame counts as so much later.
const STEP: i64 = CLOCK / 25;

/// How an elementary stream's units are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    H264,
    H265,
    OtherVideo,
    Audio,
    Data,
}

impl Codec {
    /// By `stream_type` (table 2-34, ATSC A/52 and A/53).
    fn of(stream_type: u8) -> Self {
        match stream_type {
            0x1b => Self::H264,
            0x24 => Self::H265,
            0x01 | 0x02 | 0x10 | 0x33 | 0xd1 | 0xea => Self::OtherVideo,
            0x03 | 0x04 | 0x0f | 0x11 | 0x81 | 0x84 | 0x87 => Self::Audio,
            _ => Self::Data,
        }
    }

    fn is_video(self) -> bool {
        matches!(self, Self::H264 | Self::H265 | Self::OtherVideo)
    }
}

/// An elementary stream.
#[derive(Debug)]
struct Elementary {
    codec: Codec,
    track: u8,
    /// Packets of the unit that is not complete.
    packets: BytesMut,
    is_marked: bool,
    is_too_large: bool,
    /// An IDR has come: recovery points are no key frames then.
    has_idr: bool,
    /// The highest temporal layer that has come.
    layers: u8,
}

/// Something that was passed over.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Passed {
    /// So many bytes that are no packets.
    #[error("{0} bytes that are no packets of a transport stream were passed over")]
    Unsynchronised(u64),
    /// A packet that its sender marks as damaged.
    #[error("packets that their sender marks as damaged were left out")]
    Damaged,
    /// A unit of this PID is larger than a frame may be; its track goes on at the next key frame.
    #[error(
        "a unit of PID {0} is larger than 8 MiB and was left out; its pictures go on at the next key frame"
    )]
    TooLarge(u16),
    /// There were no tables in the first megabytes.
    #[error(
        "no program tables in the first 5 MB: is this an MPEG transport stream? (ffmpeg: -f mpegts)"
    )]
    NoTables,
    /// There are more elementary streams than are followed; this one is not.
    #[error("PID {0} is one stream too many and is not followed")]
    TooMany(u16),
}

/// Cuts a transport stream into frames.
#[derive(Debug, Default)]
pub struct TsSplitter {
    waiting: BytesMut,
    at: u64,
    programs: BTreeMap<u16, u16>,
    streams: BTreeMap<u16, Elementary>,
    videos: u8,
    clock: Clock,
    chains: Chains,
    passed: Vec<Passed>,
    skipped: u64,
    has_complained: bool,
}

/// Decoding times that grow, whatever the stream's clock does.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    /// The last time as it was read, and as it counts, ticks.
    last: Option<(i64, i64)>,
    newest: i64,
}

impl Clock {
    /// The time of a unit with this DTS.
    fn at(&mut self, dts: i64) -> Duration {
        let at = match self.last {
            None => 0,
            Some((last, at)) => {
                let half = WRAP / 2;
                let passed = (dts - last + half).rem_euclid(WRAP) - half;
                if passed.abs() > JUMP { self.newest + STEP } else { at + passed }
            }
        };
        self.last = Some((dts, at));
        self.newest = self.newest.max(at);
        ticks(at)
    }

    fn newest(&self) -> Duration {
        ticks(self.newest)
    }
}

/// Before the first unit's time there is none.
fn ticks(at: i64) -> Duration {
    Duration::from_micros(at.max(0).unsigned_abs() * 100 / 9)
}

impl TsSplitter {
    fn note(&mut self, what: Passed) {
        if self.passed.len() < 64 && !self.passed.contains(&what) {
            self.passed.push(what);
        }
    }

    /// The next packet; what is before it and is none is passed over.
    fn packet(&mut self) -> Option<[u8; PACKET]> {
        loop {
            let packet: [u8; PACKET] = *self.waiting.first_chunk()?;
            let next = self.waiting.get(PACKET);
            if packet[0] == SYNC && next.is_none_or(|byte| *byte == SYNC) {
                bytes::Buf::advance(&mut self.waiting, PACKET);
                return Some(packet);
            }
            let rest = self.waiting.iter().skip(1).position(|byte| *byte == SYNC);
            let skip = rest.map_or(self.waiting.len(), |at| at + 1);
            bytes::Buf::advance(&mut self.waiting, skip);
            self.skipped += skip as u64;
        }
    }

    fn take(&mut self, packet: &[u8; PACKET], into: &mut Vec<Frame>) {
        let pid = u16::from(packet[1] & 0x1f) << 8 | u16::from(packet[2]);
        if packet[1] & 0x80 != 0 {
            return self.note(Passed::Damaged);
        }
        let is_start = packet[1] & 0x40 != 0;
        if pid == NULL {
            return;
        }
        if let Some(stream) = self.streams.get_mut(&pid) {
            if is_start && !stream.packets.is_empty() {
                self.complete(pid, into);
            }
            return self.append(pid, packet);
        }
        let payload = payload(packet).unwrap_or_default();
        if is_start && pid == 0 {
            self.read_pat(payload);
        } else if is_start && self.programs.contains_key(&pid) {
            self.read_pmt(payload);
        }
        // Tables, clocks with a PID of their own, and whatever belongs to no program that is known.
        into.push(self.tables(Bytes::copy_from_slice(packet)));
    }

    fn tables(&self, bytes: Bytes) -> Frame {
        Frame { track: 0, class: FrameClass::Tables, time: self.clock.newest(), bytes }
    }

    fn append(&mut self, pid: u16, packet: &[u8; PACKET]) {
        let Some(stream) = self.streams.get_mut(&pid) else { return };
        if stream.packets.len() + PACKET > MAX_FRAME as usize {
            stream.packets.clear();
            stream.is_too_large = true;
        }
        stream.is_marked |= is_random_access(packet);
        stream.packets.extend_from_slice(packet);
        if stream.is_too_large {
            self.note(Passed::TooLarge(pid));
        }
    }

    /// The unit of this PID is whole.
    fn complete(&mut self, pid: u16, into: &mut Vec<Frame>) {
        let Some(stream) = self.streams.get_mut(&pid) else { return };
        let packets = stream.packets.split().freeze();
        let is_marked = std::mem::take(&mut stream.is_marked);
        if std::mem::take(&mut stream.is_too_large) {
            self.chains.lost(stream.track, FrameClass::Reference);
            return;
        }
        let pes = elementary(&packets);
        let class = match stream.codec {
            Codec::Audio => FrameClass::Audio,
            Codec::Data => FrameClass::Tables,
            Codec::H264 => stream.h264(body(&pes)),
            Codec::H265 => stream.h265(body(&pes)),
            Codec::OtherVideo if is_marked => FrameClass::Key,
            Codec::OtherVideo => FrameClass::Reference,
        };
        let time = match decoding_time(&pes) {
            Some(dts) if stream.codec != Codec::Data => self.clock.at(dts),
            _ => self.clock.newest(),
        };
        let track = stream.track;
        // At the beginning, and after a unit that was too large, nobody can decode what refers to others.
        if self.chains.take(track, class) {
            into.push(Frame { track, class, time, bytes: packets });
        }
    }

    /// Programs and their PMTs (2.4.4.3).
    fn read_pat(&mut self, payload: &[u8]) {
        let Some(section) = section(payload, 0x00) else { return };
        let found: BTreeMap<u16, u16> = section[5..]
            .chunks_exact(4)
            .map(|entry| (word(&entry[2..]) & 0x1fff, word(entry)))
            .filter(|(_, program)| *program != 0)
            .take(MOST_PROGRAMS)
            .collect();
        if found != self.programs {
            self.programs = found;
        }
    }

    /// A program's elementary streams (2.4.4.8).
    fn read_pmt(&mut self, payload: &[u8]) {
        let Some(section) = section(payload, 0x02) else { return };
        let Some(skip) = section.get(7..9).map(|length| usize::from(word(length) & 0x0fff)) else {
            return;
        };
        let mut rest = section.get(9 + skip..).unwrap_or_default();
        while let Some((head, more)) = rest.split_at_checked(5) {
            let (kind, pid) = (head[0], word(&head[1..]) & 0x1fff);
            let length = usize::from(word(&head[3..]) & 0x0fff);
            rest = more.get(length..).unwrap_or_default();
            self.follow(pid, Codec::of(kind));
        }
    }

    fn follow(&mut self, pid: u16, codec: Codec) {
        if self.streams.get(&pid).is_some_and(|stream| stream.codec == codec) {
            return;
        }
        let is_full = self.streams.len() >= MOST_STREAMS
            || codec.is_video() && usize::from(self.videos) >= MAX_TRACKS;
        if is_full || pid == 0 || pid == NULL || self.programs.contains_key(&pid) {
            return self.note(Passed::TooMany(pid));
        }
        let mut track = 0;
        if codec.is_video() {
            track = self.videos;
            self.videos += 1;
        }
        let stream = Elementary {
            codec,
            track,
            packets: BytesMut::new(),
            is_marked: false,
            is_too_large: false,
            has_idr: false,
            layers: 0,
        };
        self.streams.insert(pid, stream);
    }
}

impl Elementary {
    fn h264(&mut self, body: &[u8]) -> FrameClass {
        let (mut is_used, mut is_recovery, mut has_slice) = (false, false, false);
        for nal in nal_units(body) {
            let Some(head) = nal.first() else { continue };
            match head & 0x1f {
                5 => {
                    self.has_idr = true;
                    return FrameClass::Key;
                }
                1..=4 => {
                    has_slice = true;
                    is_used |= head & 0x60 != 0;
                }
                // Supplemental information, of which a recovery point is type 6 (D.1.8).
                6 => is_recovery |= nal.get(1) == Some(&6),
                _ => {}
            }
        }
        match () {
            () if is_recovery && !self.has_idr => FrameClass::Key,
            () if has_slice && !is_used => FrameClass::Disposable,
            () => FrameClass::Reference,
        }
    }

    fn h265(&mut self, body: &[u8]) -> FrameClass {
        for nal in nal_units(body) {
            let [first, second, ..] = nal else { continue };
            let (kind, layer) = (first >> 1 & 0x3f, (second & 7).saturating_sub(1));
            if kind >= 32 {
                continue;
            }
            self.layers = self.layers.max(layer);
            return match kind {
                16..=21 => FrameClass::Key,
                // Even types below 16: no picture of the same layer refers to it, and there is no layer above.
                0..16 if kind % 2 == 0 && layer == self.layers => FrameClass::Disposable,
                _ => FrameClass::Reference,
            };
        }
        FrameClass::Reference
    }
}

impl Splitter for TsSplitter {
    fn push(&mut self, bytes: &[u8], into: &mut Vec<Frame>) -> Result<(), SplitError> {
        self.waiting.extend_from_slice(bytes);
        self.at += bytes.len() as u64;
        while let Some(packet) = self.packet() {
            self.take(&packet, into);
        }
        if self.streams.is_empty() && self.at > NO_TABLES && !self.has_complained {
            self.has_complained = true;
            self.passed.push(Passed::NoTables);
        }
        Ok(())
    }

    fn end(&mut self, into: &mut Vec<Frame>) -> usize {
        // What follows would have ended them.
        let pids: Vec<u16> = self.streams.keys().copied().collect();
        for pid in pids {
            if self.streams.get(&pid).is_some_and(|stream| !stream.packets.is_empty()) {
                self.complete(pid, into);
            }
        }
        std::mem::take(&mut self.waiting).len()
    }

    fn passed(&mut self) -> Vec<Passed> {
        if self.skipped > 0 {
            self.passed.push(Passed::Unsynchronised(std::mem::take(&mut self.skipped)));
        }
        std::mem::take(&mut self.passed)
    }
}

fn word(bytes: &[u8]) -> u16 {
    bytes.first_chunk().map_or(0, |word| u16::from_be_bytes(*word))
}

/// A packet's payload (2.4.3.3); `None`: it has none.
fn payload(packet: &[u8; PACKET]) -> Option<&[u8]> {
    let control = packet[3] >> 4 & 3;
    match control {
        1 => packet.get(4..),
        3 => packet.get(5 + usize::from(packet[4])..),
        _ => None,
    }
}

/// Whether the multiplexer marks the unit that begins here for random access.
fn is_random_access(packet: &[u8; PACKET]) -> bool {
    packet[3] & 0x20 != 0 && packet[4] > 0 && packet[5] & 0x40 != 0
}

/// A section's bytes behind its length and before its check sum, if it is of this table and whole in one packet.
fn section(payload: &[u8], table: u8) -> Option<&[u8]> {
    let pointer = usize::from(*payload.first()?);
    let section = payload.get(1 + pointer..)?;
    let length = usize::from(word(section.get(1..3)?) & 0x0fff);
    let body = section.get(3..3 + length)?;
    // Five bytes of head and four of check sum.
    (section[0] == table && length >= 9).then(|| &body[..length - 4])
}

/// The payloads of a unit's packets, one behind the other.
fn elementary(packets: &[u8]) -> Vec<u8> {
    let (packets, _) = packets.as_chunks::<PACKET>();
    packets.iter().filter_map(payload).flatten().copied().collect()
}

/// What is behind a PES header (2.4.3.6).
fn body(pes: &[u8]) -> &[u8] {
    let length = pes.get(8).map_or(0, |length| usize::from(*length));
    pes.get(9 + length..).unwrap_or_default()
}

/// DTS, or PTS where there is none.
fn decoding_time(pes: &[u8]) -> Option<i64> {
    let flags = pes.get(7)? >> 6;
    let at = match flags {
        3 => 14,
        2 => 9,
        _ => return None,
    };
    let stamp: &[u8; 5] = pes.get(at..)?.first_chunk()?;
    let bits = |byte: u8, mask: u8| i64::from(byte & mask) >> 1;
    let [a, b, c, d, e] = *stamp;
    Some(
        bits(a, 0x0e) << 30
            | i64::from(b) << 22
            | bits(c, 0xfe) << 15
            | i64::from(d) << 7
            | bits(e, 0xfe),
    )
}

/// NAL units behind start codes (14496-10, annex B).
fn nal_units(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts = body.windows(3).enumerate().filter(|(_, code)| code == &[0, 0, 1]);
    starts.map(|(at, _)| &body[at + 3..])
}

/// Puts frames together to a transport stream.
#[derive(Debug, Default)]
pub struct TsJoiner {
    /// The next continuity counter of each PID.
    counters: BTreeMap<u16, u8>,
    /// The newest packet of each PID that carries tables.
    tables: BTreeMap<u16, [u8; PACKET]>,
}

/// The most PIDs of tables that are kept.
const MOST_TABLES: usize = 32;

impl TsJoiner {
    /// The frame's packets, before a key frame the tables once more; counters as if nothing had been left out.
    pub fn push(&mut self, frame: &Frame, into: &mut Vec<u8>) {
        let (packets, _) = frame.bytes.as_chunks::<PACKET>();
        if frame.class == FrameClass::Key {
            for packet in self.tables.clone().values() {
                self.packet(packet, into);
            }
        }
        for packet in packets {
            let pid = u16::from(packet[1] & 0x1f) << 8 | u16::from(packet[2]);
            let is_table = frame.class == FrameClass::Tables && packet[1] & 0x40 != 0;
            if is_table && (self.tables.len() < MOST_TABLES || self.tables.contains_key(&pid)) {
                self.tables.insert(pid, *packet);
            }
            self.packet(packet, into);
        }
    }

    fn packet(&mut self, packet: &[u8; PACKET], into: &mut Vec<u8>) {
        let pid = u16::from(packet[1] & 0x1f) << 8 | u16::from(packet[2]);
        let mut packet = *packet;
        let counter = self.counters.entry(pid).or_default();
        // A packet without payload repeats the counter of the one before (2.4.3.3).
        let has_payload = packet[3] & 0x10 != 0;
        let shown = if has_payload { *counter } else { counter.wrapping_sub(1) & 0x0f };
        packet[3] = packet[3] & 0xf0 | shown;
        if has_payload {
            *counter = (*counter + 1) & 0x0f;
        }
        into.extend_from_slice(&packet);
    }
}

#[cfg(test)]
#[path = "ts_tests.rs"]
mod tests;
