//! Splits MPEG transport streams (ISO/IEC 13818-1) into frames and joins frames again. Pure.
//!
//! ```text
//! bytes ─► packets of 188 ─► PAT, PMT: PIDs ─► per PID: access units, by PES starts ─► Frame
//! Frame ─► tables repeated before key frames, new continuity counters ─► bytes
//! ```
//!
//! Pictures are classified by their NAL units: H.264 by type and `nal_ref_idc` (ISO/IEC 14496-10, 7.4.1), H.265 by type
//! and temporal layer (ISO/IEC 23008-2, 7.4.2.2). Pictures of other codecs count as key frames where the multiplexer
//! marks random access, and otherwise as reference frames.

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

/// The sync byte, first in each packet.
const SYNC: u8 = 0x47;

/// The PID of null packets.
const NULL: u16 = 0x1fff;

/// The most programs and elementary streams that are read: the renditions of a ladder, each with audio.
const MAX_PROGRAMS: usize = 16;
const MAX_STREAMS: usize = 64;

/// The input without tables after which a warning is due: 2 s at 20 Mbit/s, while tables usually repeat every 0.1 s.
const NO_TABLES: u64 = 5_000_000;

/// A larger jump counts as a restart of the clock.
const JUMP: i64 = 10 * CLOCK;

/// The ticks of PTS and DTS per second, and their range (2.4.3.7).
const CLOCK: i64 = 90_000;
const WRAP: i64 = 1 << 33;

/// The time between the frames before and after a restart of the clock.
const STEP: i64 = CLOCK / 25;

/// The type of an elementary stream, by which its units are classified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    H264,
    H265,
    OtherVideo,
    Audio,
    Data,
}

impl Codec {
    /// The codec for a `stream_type` (table 2-34, ATSC A/52 and A/53).
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
    /// The packets of the incomplete unit.
    packets: BytesMut,
    is_marked: bool,
    is_too_large: bool,
    /// Whether an IDR has been seen; if so, recovery points are not key frames.
    has_idr: bool,
    /// The highest temporal layer seen.
    layers: u8,
}

/// A warning about input that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InputWarning {
    /// Bytes outside of packets.
    #[error("skipped {0} bytes that are not transport stream packets")]
    Unsynchronised(u64),
    /// A packet with the transport error indicator set.
    #[error("skipped packets with the transport error indicator set")]
    Damaged,
    /// A unit of this PID exceeds the maximum size of a frame; its track resumes at the next key frame.
    #[error("skipped a unit of PID {0} larger than 8 MiB; its video resumes at the next key frame")]
    TooLarge(u16),
    /// There are no tables in the first 5 MB.
    #[error(
        "no program tables in the first 5 MB: is this an MPEG transport stream? (ffmpeg: -f mpegts)"
    )]
    NoTables,
    /// The elementary stream with this PID exceeds the maximum number.
    #[error("too many elementary streams: PID {0} is ignored")]
    TooMany(u16),
}

/// Splits a transport stream into frames.
#[derive(Debug, Default)]
pub struct TsSplitter {
    waiting: BytesMut,
    at: u64,
    programs: BTreeMap<u16, u16>,
    streams: BTreeMap<u16, Elementary>,
    videos: u8,
    clock: DecodingClock,
    chains: Chains,
    warnings: Vec<InputWarning>,
    skipped: u64,
    has_warned: bool,
}

/// Unwraps decoding times, so that they go on across wraps and restarts of the stream's clock.
#[derive(Clone, Copy, Debug, Default)]
struct DecodingClock {
    /// The last time, as read and unwrapped, ticks.
    last: Option<(i64, i64)>,
    newest: i64,
}

impl DecodingClock {
    /// Unwraps the DTS of a unit.
    fn advance(&mut self, dts: i64) -> Duration {
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

/// Converts ticks; times before the first unit become zero.
fn ticks(at: i64) -> Duration {
    Duration::from_micros(at.max(0).unsigned_abs() * 100 / 9)
}

impl TsSplitter {
    fn warn(&mut self, what: InputWarning) {
        if self.warnings.len() < 64 && !self.warnings.contains(&what) {
            self.warnings.push(what);
        }
    }

    /// Removes the next packet, skipping bytes before it.
    fn next_packet(&mut self) -> Option<[u8; PACKET]> {
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

    fn add_packet(&mut self, packet: &[u8; PACKET], into: &mut Vec<Frame>) {
        let pid = u16::from(packet[1] & 0x1f) << 8 | u16::from(packet[2]);
        if packet[1] & 0x80 != 0 {
            return self.warn(InputWarning::Damaged);
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
        // Tables, PCR packets with their own PID, and packets of unknown programs.
        into.push(self.table_frame(Bytes::copy_from_slice(packet)));
    }

    fn table_frame(&self, bytes: Bytes) -> Frame {
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
            self.warn(InputWarning::TooLarge(pid));
        }
    }

    /// Completes the unit of this PID.
    fn complete(&mut self, pid: u16, into: &mut Vec<Frame>) {
        let Some(stream) = self.streams.get_mut(&pid) else { return };
        let packets = stream.packets.split().freeze();
        let is_marked = std::mem::take(&mut stream.is_marked);
        if std::mem::take(&mut stream.is_too_large) {
            self.chains.record_loss(stream.track, FrameClass::Reference);
            return;
        }
        let pes = join_payloads(&packets);
        let class = match stream.codec {
            Codec::Audio => FrameClass::Audio,
            Codec::Data => FrameClass::Tables,
            Codec::H264 => stream.h264(pes_payload(&pes)),
            Codec::H265 => stream.h265(pes_payload(&pes)),
            Codec::OtherVideo if is_marked => FrameClass::Key,
            Codec::OtherVideo => FrameClass::Reference,
        };
        let time = match decoding_time(&pes) {
            Some(dts) if stream.codec != Codec::Data => self.clock.advance(dts),
            _ => self.clock.newest(),
        };
        let track = stream.track;
        // At the start and after an oversized unit, reference and disposable frames cannot be decoded.
        if self.chains.accept(track, class) {
            into.push(Frame { track, class, time, bytes: packets });
        }
    }

    /// Reads the programs and their PMTs (2.4.4.3).
    fn read_pat(&mut self, payload: &[u8]) {
        let Some(section) = parse_section(payload, 0x00) else { return };
        let found: BTreeMap<u16, u16> = section[5..]
            .chunks_exact(4)
            .map(|entry| (read_u16(&entry[2..]) & 0x1fff, read_u16(entry)))
            .filter(|(_, program)| *program != 0)
            .take(MAX_PROGRAMS)
            .collect();
        if found != self.programs {
            self.programs = found;
        }
    }

    /// Reads a program's elementary streams (2.4.4.8).
    fn read_pmt(&mut self, payload: &[u8]) {
        let Some(section) = parse_section(payload, 0x02) else { return };
        let Some(skip) = section.get(7..9).map(|length| usize::from(read_u16(length) & 0x0fff))
        else {
            return;
        };
        let mut rest = section.get(9 + skip..).unwrap_or_default();
        while let Some((head, more)) = rest.split_at_checked(5) {
            let (kind, pid) = (head[0], read_u16(&head[1..]) & 0x1fff);
            let length = usize::from(read_u16(&head[3..]) & 0x0fff);
            rest = more.get(length..).unwrap_or_default();
            self.follow(pid, Codec::of(kind));
        }
    }

    fn follow(&mut self, pid: u16, codec: Codec) {
        if self.streams.get(&pid).is_some_and(|stream| stream.codec == codec) {
            return;
        }
        let is_full = self.streams.len() >= MAX_STREAMS
            || codec.is_video() && usize::from(self.videos) >= MAX_TRACKS;
        if is_full || pid == 0 || pid == NULL || self.programs.contains_key(&pid) {
            return self.warn(InputWarning::TooMany(pid));
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
                // SEI; payload type 6 is a recovery point (D.1.8).
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
                // Even types below 16 are not referenced in their layer, and this is the highest layer.
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
        while let Some(packet) = self.next_packet() {
            self.add_packet(&packet, into);
        }
        if self.streams.is_empty() && self.at > NO_TABLES && !self.has_warned {
            self.has_warned = true;
            self.warnings.push(InputWarning::NoTables);
        }
        Ok(())
    }

    fn end(&mut self, into: &mut Vec<Frame>) -> usize {
        // Units end where the next one starts, so the last ones are still open.
        let pids: Vec<u16> = self.streams.keys().copied().collect();
        for pid in pids {
            if self.streams.get(&pid).is_some_and(|stream| !stream.packets.is_empty()) {
                self.complete(pid, into);
            }
        }
        std::mem::take(&mut self.waiting).len()
    }

    fn take_warnings(&mut self) -> Vec<InputWarning> {
        if self.skipped > 0 {
            self.warnings.push(InputWarning::Unsynchronised(std::mem::take(&mut self.skipped)));
        }
        std::mem::take(&mut self.warnings)
    }
}

fn read_u16(bytes: &[u8]) -> u16 {
    bytes.first_chunk().map_or(0, |word| u16::from_be_bytes(*word))
}

/// The payload of a packet, if it has one (2.4.3.3).
fn payload(packet: &[u8; PACKET]) -> Option<&[u8]> {
    let control = packet[3] >> 4 & 3;
    match control {
        1 => packet.get(4..),
        3 => packet.get(5 + usize::from(packet[4])..),
        _ => None,
    }
}

/// Whether the packet has the random access indicator set.
fn is_random_access(packet: &[u8; PACKET]) -> bool {
    packet[3] & 0x20 != 0 && packet[4] > 0 && packet[5] & 0x40 != 0
}

/// The bytes of a section between its length and its CRC, if it belongs to this table and fits in one packet.
fn parse_section(payload: &[u8], table: u8) -> Option<&[u8]> {
    let pointer = usize::from(*payload.first()?);
    let section = payload.get(1 + pointer..)?;
    let length = usize::from(read_u16(section.get(1..3)?) & 0x0fff);
    let body = section.get(3..3 + length)?;
    // Five bytes of head and four of CRC.
    (section[0] == table && length >= 9).then(|| &body[..length - 4])
}

/// Concatenates the payloads of a unit's packets.
fn join_payloads(packets: &[u8]) -> Vec<u8> {
    let (packets, _) = packets.as_chunks::<PACKET>();
    packets.iter().filter_map(payload).flatten().copied().collect()
}

/// The payload of a PES packet (2.4.3.6).
fn pes_payload(pes: &[u8]) -> &[u8] {
    let length = pes.get(8).map_or(0, |length| usize::from(*length));
    pes.get(9 + length..).unwrap_or_default()
}

/// The DTS, or the PTS if there is no DTS.
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

/// The NAL units after start codes (14496-10, annex B).
fn nal_units(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts = body.windows(3).enumerate().filter(|(_, code)| code == &[0, 0, 1]);
    starts.map(|(at, _)| &body[at + 3..])
}

/// Joins frames to a transport stream.
#[derive(Debug, Default)]
pub struct TsJoiner {
    /// The next continuity counter of each PID.
    counters: BTreeMap<u16, u8>,
    /// The newest packet of each PID that carries tables.
    tables: BTreeMap<u16, [u8; PACKET]>,
}

/// The most PIDs whose tables are kept.
const MAX_TABLES: usize = 32;

impl TsJoiner {
    /// Writes the frame's packets, after the tables if it is a key frame. Continuity counters show no gap.
    pub fn push(&mut self, frame: &Frame, into: &mut Vec<u8>) {
        let (packets, _) = frame.bytes.as_chunks::<PACKET>();
        if frame.class == FrameClass::Key {
            for packet in self.tables.clone().values() {
                self.push_packet(packet, into);
            }
        }
        for packet in packets {
            let pid = u16::from(packet[1] & 0x1f) << 8 | u16::from(packet[2]);
            let is_table = frame.class == FrameClass::Tables && packet[1] & 0x40 != 0;
            if is_table && (self.tables.len() < MAX_TABLES || self.tables.contains_key(&pid)) {
                self.tables.insert(pid, *packet);
            }
            self.push_packet(packet, into);
        }
    }

    fn push_packet(&mut self, packet: &[u8; PACKET], into: &mut Vec<u8>) {
        let pid = u16::from(packet[1] & 0x1f) << 8 | u16::from(packet[2]);
        let mut packet = *packet;
        let counter = self.counters.entry(pid).or_default();
        // A packet without payload repeats the previous counter (2.4.3.3).
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
