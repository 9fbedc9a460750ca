//! Splits a transport stream into frames.

use crate::{
    Codec, Frame, FrameClass, InputWarning, PACKET, TrackRates,
    chain::ReferenceChain,
    dts_timeline::{DtsTimeline, StreamClock},
    input_warning::Warnings,
    nal::{Classification, PictureClassifier, Syntax, nal_units},
    packet::{Continuity, ContinuityCounter, NULL_PID, Packet, RawPacket, SYNC},
    pes::{self, PesHeader},
    tables::Programs,
};
use bytes::{Buf, Bytes, BytesMut};
use std::{collections::BTreeMap, time::Duration};

/// The maximum number of tracks of a stream.
pub const MAX_TRACKS: usize = 16;

/// If the maps of some programs are missing this many bytes after the first one, tracks are numbered without them.
const PATIENCE: u64 = 2_000_000;

/// The input without tables after which a warning is due: 2 s at 20 Mbit/s, while tables usually repeat every 0.1 s.
const NO_TABLES: u64 = 5_000_000;

/// The time without a key frame after which a warning is due.
const NO_KEY: Duration = Duration::from_secs(10);

/// The maximum number of packets of one frame of tables.
const MAX_TABLES_PACKETS: usize = 64;

/// Lower PIDs belong to tables that no program names.
const FIRST_FREE_PID: u16 = 0x20;

/// The bounds of an input.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum size of a frame, bytes.
    pub frame: usize,
    /// The maximum size of all incomplete units together, bytes.
    pub waiting: usize,
    /// The maximum number of elementary streams.
    pub streams: usize,
    /// The maximum number of programs.
    pub programs: usize,
    /// The maximum number of videos; at most [`MAX_TRACKS`].
    pub tracks: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { frame: 8 << 20, waiting: 32 << 20, streams: 64, programs: 16, tracks: MAX_TRACKS }
    }
}

/// The counters of a splitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitterCounts {
    /// All packets.
    pub packets: u64,
    /// Null packets.
    pub null: u64,
    /// Duplicate packets.
    pub repeated: u64,
    /// Packets of unknown streams, or of units whose beginning is missing.
    pub stray: u64,
    /// Units that were dropped because they are damaged, too large or cannot be decoded.
    pub dropped: u64,
}

/// A video of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrackInfo {
    /// Its program's number.
    pub program: u16,
    /// Its present PID.
    pub pid: u16,
    /// Its codec.
    pub codec: Codec,
    /// Its index among its program's videos.
    nth: usize,
}

/// Splits a transport stream into frames. The frames do not depend on how the bytes are cut into pieces.
///
/// A unit is complete when the next one of its PID begins; a unit of audio also when it has its announced length.
/// Pictures that cannot be decoded are dropped: those before the first key frame, and those from a damaged one to the next
/// key frame. Each key frame of H.264 and H.265 includes its parameter sets.
#[derive(Debug)]
pub struct TsSplitter {
    limits: Limits,
    waiting: BytesMut,
    is_synchronised: bool,
    /// The PID of the newest packet, which is damaged if no packet follows it directly.
    newest_pid: u16,
    bytes_read: u64,
    programs: Programs,
    /// The number of bytes before the first map.
    first_map: Option<u64>,
    has_streams: bool,
    streams: BTreeMap<u16, ElementaryStream>,
    tracks: Vec<TrackInfo>,
    rates: Vec<TrackRates>,
    line: DtsTimeline,
    /// The maximum size of all incomplete units together, bytes.
    unit_bytes: usize,
    /// Packets of an incomplete frame of tables, all of one PID.
    tables: BytesMut,
    tables_pid: u16,
    counts: SplitterCounts,
    warnings: Warnings,
    has_warned: bool,
}

/// An elementary stream.
#[derive(Debug)]
struct ElementaryStream {
    codec: Codec,
    program: u16,
    track: u8,
    classifier: Option<PictureClassifier>,
    chain: ReferenceChain,
    clock: StreamClock,
    counter: ContinuityCounter,
    unit: Unit,
    /// Whether units begin with an access unit delimiter.
    has_delimiters: bool,
    /// The time of the first picture that was dropped for lack of a key frame.
    waits_since: Option<Duration>,
    /// Whether a key frame has come.
    has_key: bool,
    /// The maximum size of a frame, bytes.
    limit: usize,
}

/// The packets of an incomplete unit.
#[derive(Debug, Default)]
struct Unit {
    packets: BytesMut,
    is_open: bool,
    /// Whether part of it is missing or was not kept.
    is_damaged: bool,
    is_scrambled: bool,
    has_random_access: bool,
    /// The size of its payload so far, and its announced size if known, bytes.
    payload: usize,
    length: Option<usize>,
    /// Its time; `None` if its first packet does not include its head.
    time: Option<Duration>,
}

impl Default for TsSplitter {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl TsSplitter {
    /// Creates a splitter with these bounds.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            waiting: BytesMut::new(),
            is_synchronised: false,
            newest_pid: NULL_PID,
            bytes_read: 0,
            programs: Programs::new(limits.programs),
            first_map: None,
            has_streams: false,
            streams: BTreeMap::new(),
            tracks: Vec::new(),
            rates: Vec::new(),
            line: DtsTimeline::default(),
            unit_bytes: 0,
            tables: BytesMut::new(),
            tables_pid: NULL_PID,
            counts: SplitterCounts::default(),
            warnings: Warnings::default(),
            has_warned: false,
        }
    }

    /// Reads the next bytes and adds the frames that they complete.
    pub fn push(&mut self, bytes: &[u8], into: &mut Vec<Frame>) {
        self.waiting.extend_from_slice(bytes);
        while let Some(packet) = self.next_packet(false) {
            self.read_packet(&packet, into);
        }
    }

    /// Ends the input and adds the last frames.
    pub fn end(&mut self, into: &mut Vec<Frame>) {
        while let Some(packet) = self.next_packet(true) {
            self.read_packet(&packet, into);
        }
        self.finish_bytes();
        let pids: Vec<u16> = self.streams.keys().copied().collect();
        for pid in pids {
            self.complete_unit(pid, into);
        }
        self.flush_tables(into);
        self.warn_without_tables(true);
    }

    /// Returns the warnings since the last call.
    pub fn take_warnings(&mut self) -> Vec<InputWarning> {
        self.warnings.take()
    }

    /// The counters since the beginning.
    pub fn counts(&self) -> SplitterCounts {
        self.counts
    }

    /// The bytes of incomplete units and packets: at most [`Limits::waiting`] and 66 packets.
    pub fn held_bytes(&self) -> usize {
        self.unit_bytes + self.waiting.len() + self.tables.len()
    }

    /// The videos by track. A track keeps its index when its PID changes.
    pub fn tracks(&self) -> &[TrackInfo] {
        &self.tracks
    }

    /// The rates of a track. Shared audio and tables count with track 0.
    pub fn rates(&self, track: u8) -> Option<&TrackRates> {
        self.rates.get(usize::from(track))
    }

    /// Removes the next packet, skipping bytes before it.
    fn next_packet(&mut self, is_end: bool) -> Option<RawPacket> {
        let mut skipped = 0;
        let found = loop {
            if self.is_synchronised {
                match self.waiting.first_chunk::<PACKET>() {
                    Some(packet) if packet[0] == SYNC => break Some(*packet),
                    None if self.waiting.first().is_none_or(|byte| *byte == SYNC) => break None,
                    _ => self.lose_synchronisation(),
                }
            }
            let (skip, found) = synchronise(&self.waiting, is_end);
            self.waiting.advance(skip);
            skipped += skip as u64;
            if !found {
                break None;
            }
            self.is_synchronised = true;
        };
        if skipped > 0 {
            self.bytes_read += skipped;
            self.warnings.add(InputWarning::Unsynchronised { bytes: skipped });
            self.warn_without_tables(false);
        }
        if found.is_some() {
            self.waiting.advance(PACKET);
        }
        found
    }

    /// No packet follows the newest one directly, so bytes are missing or inserted, probably in that packet.
    fn lose_synchronisation(&mut self) {
        self.is_synchronised = false;
        if let Some(stream) = self.streams.get_mut(&self.newest_pid) {
            stream.record_gap(self.newest_pid, &mut self.warnings);
        }
    }

    fn read_packet(&mut self, packet: &RawPacket, into: &mut Vec<Frame>) {
        let packet = Packet(packet);
        self.counts.packets += 1;
        self.bytes_read += PACKET as u64;
        self.warn_without_tables(false);
        let pid = packet.pid();
        self.newest_pid = pid;
        if packet.has_error() {
            return self.warnings.add(InputWarning::Damaged { packets: 1 });
        }
        if pid == NULL_PID {
            self.counts.null += 1;
        } else if self.programs.is_table(pid) {
            self.read_table_packet(packet, into);
        } else if self.streams.contains_key(&pid) {
            self.read_stream_packet(packet, into);
        } else if pid < FIRST_FREE_PID || self.has_streams {
            self.add_to_tables(packet, into);
        } else {
            // Before the maps have come nobody knows what it belongs to.
            self.counts.stray += 1;
        }
        self.update_streams_late(into);
    }

    /// Warns once that there are no tables.
    fn warn_without_tables(&mut self, is_end: bool) {
        let is_late = self.bytes_read > NO_TABLES || is_end && self.bytes_read > 0;
        if self.has_warned || self.has_streams || !is_late {
            return;
        }
        self.has_warned = true;
        let has_pat = !self.programs.all().is_empty();
        let table = if has_pat { "map (PMT)" } else { "association table (PAT)" };
        self.warnings.add(InputWarning::NoTables { table, bytes: self.bytes_read });
    }

    /// Adds a packet to the frame of tables, which consecutive packets of one PID share.
    fn add_to_tables(&mut self, packet: Packet<'_>, into: &mut Vec<Frame>) {
        let pid = packet.pid();
        if pid != self.tables_pid || self.tables.len() >= MAX_TABLES_PACKETS * PACKET {
            self.flush_tables(into);
            self.tables_pid = pid;
        }
        self.tables.extend_from_slice(packet.0);
    }

    fn flush_tables(&mut self, into: &mut Vec<Frame>) {
        if self.tables.is_empty() {
            return;
        }
        let bytes = self.tables.split().freeze();
        self.count_and_push(
            Frame { track: 0, class: FrameClass::Tables, time: self.line.newest(), bytes },
            into,
        );
    }

    /// Adds a complete frame, after the tables before it.
    fn push_frame(&mut self, frame: Frame, into: &mut Vec<Frame>) {
        self.flush_tables(into);
        self.count_and_push(frame, into);
    }

    fn count_and_push(&mut self, frame: Frame, into: &mut Vec<Frame>) {
        let track = usize::from(frame.track);
        if self.rates.len() <= track {
            self.rates.resize_with(track + 1, TrackRates::default);
        }
        self.rates[track].add(&frame);
        into.push(frame);
    }

    fn read_table_packet(&mut self, packet: Packet<'_>, into: &mut Vec<Frame>) {
        let pid = packet.pid();
        let changed = self.programs.push(packet);
        if changed.is_damaged {
            self.warnings.add(InputWarning::BadTable { pid, sections: 1 });
        }
        if changed.has_too_many {
            let limit = self.limits.programs;
            self.warnings.add(InputWarning::TooMany { what: "programs", pid, limit });
        }
        if changed.has_changed {
            if self.programs.all().iter().any(|program| program.pmt.is_some()) {
                self.first_map.get_or_insert(self.bytes_read);
            }
            if self.has_streams || self.programs.is_complete() {
                self.update_streams(into);
            }
        }
        // Units of streams that have ended are before the tables that say so.
        self.add_to_tables(packet, into);
    }

    /// Goes on without the maps that do not come.
    fn update_streams_late(&mut self, into: &mut Vec<Frame>) {
        let is_late = self.first_map.is_some_and(|at| self.bytes_read - at > PATIENCE);
        if is_late && !self.has_streams {
            self.update_streams(into);
        }
    }

    /// Reads exactly the streams that the maps name from now on.
    fn update_streams(&mut self, into: &mut Vec<Frame>) {
        self.has_streams = true;
        let named = self.list_streams();
        let is_same = |pid: u16, stream: &ElementaryStream| {
            named
                .get(&pid)
                .is_some_and(|of| (of.codec, of.program) == (stream.codec, stream.program))
        };
        let gone: Vec<u16> = self
            .streams
            .iter()
            .filter(|(pid, of)| !is_same(**pid, of))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in gone {
            self.complete_unit(pid, into);
            self.streams.remove(&pid);
        }
        for (pid, of) in named {
            let stream = self
                .streams
                .entry(pid)
                .or_insert_with(|| ElementaryStream::new(of.codec, of.program, self.limits.frame));
            stream.track = of.track;
        }
    }

    /// The streams that the maps name, within the bounds.
    fn list_streams(&mut self) -> BTreeMap<u16, ListedStream> {
        let mut named: BTreeMap<u16, ListedStream> = BTreeMap::new();
        let programs = self.programs.all().to_vec();
        for program in &programs {
            let mut videos = 0;
            for entry in program.pmt.iter().flat_map(|pmt| &pmt.streams) {
                let (pid, codec) = (entry.pid, entry.codec());
                if pid < FIRST_FREE_PID || pid == NULL_PID || self.programs.is_table(pid) {
                    continue;
                }
                let nth = videos;
                videos += usize::from(codec.is_video());
                if let Some(known) = named.get_mut(&pid) {
                    // Several programs share it.
                    known.is_shared = true;
                    continue;
                }
                if named.len() >= self.limits.streams {
                    let limit = self.limits.streams;
                    self.warnings.add(InputWarning::TooMany {
                        what: "elementary streams",
                        pid,
                        limit,
                    });
                    break;
                }
                let info = TrackInfo { program: program.number, pid, codec, nth };
                let track = if codec.is_video() { self.assign_track(info) } else { Some(0) };
                if let Some(track) = track {
                    let of =
                        ListedStream { codec, program: program.number, track, is_shared: false };
                    named.insert(pid, of);
                }
            }
        }
        self.assign_audio_tracks(&mut named);
        named
    }

    /// Assigns audio of one program of several to the track of its video.
    fn assign_audio_tracks(&self, named: &mut BTreeMap<u16, ListedStream>) {
        let has_several = self.programs.all().len() > 1;
        for of in
            named.values_mut().filter(|of| of.codec.is_audio() && !of.is_shared && has_several)
        {
            let place = self.tracks.iter().position(|track| track.program == of.program);
            of.track = place.map_or(0, |place| place as u8);
        }
    }

    /// The track of this video: the one it had, that of its predecessor in the program or in a program that has ended,
    /// or a new one.
    fn assign_track(&mut self, info: TrackInfo) -> Option<u8> {
        let is_its = |track: &TrackInfo| track.program == info.program && track.nth == info.nth;
        let has_gone = |track: &TrackInfo| {
            let is_there = self.programs.all().iter().any(|of| of.number == track.program);
            !is_there && track.nth == info.nth
        };
        let place = self.tracks.iter().position(is_its);
        let place = place.or_else(|| self.tracks.iter().position(has_gone));
        if let Some(place) = place {
            self.tracks[place] = info;
        } else if self.tracks.len() < self.limits.tracks.min(MAX_TRACKS) {
            self.tracks.push(info);
        } else {
            let limit = self.limits.tracks.min(MAX_TRACKS);
            self.warnings.add(InputWarning::TooMany { what: "videos", pid: info.pid, limit });
            return None;
        }
        Some(place.unwrap_or(self.tracks.len() - 1) as u8)
    }

    fn read_stream_packet(&mut self, packet: Packet<'_>, into: &mut Vec<Frame>) {
        let pid = packet.pid();
        let Some(stream) = self.streams.get_mut(&pid) else { return };
        if matches!(stream.codec, Codec::Data(_)) {
            return self.add_to_tables(packet, into);
        }
        match stream.counter.check(packet) {
            Continuity::Follows => {}
            Continuity::Repeated => return self.counts.repeated += 1,
            Continuity::Gap => {
                stream.record_gap(pid, &mut self.warnings);
                self.warnings.add(InputWarning::Gaps { pid, gaps: 1 });
            }
        }
        if packet.is_start() && packet.has_payload() && !stream.is_continuation(packet) {
            self.complete_unit(pid, into);
            self.begin_unit(packet);
        } else if self.streams.get(&pid).is_some_and(|stream| !stream.unit.is_open) {
            return self.keep_clock(packet, into);
        }
        self.append_to_unit(packet);
        if self.streams.get(&pid).is_some_and(|stream| stream.unit.is_complete()) {
            self.complete_unit(pid, into);
        }
    }

    /// Keeps the clock reference of a packet that belongs to no unit.
    fn keep_clock(&mut self, packet: Packet<'_>, into: &mut Vec<Frame>) {
        match crate::frame::clock_packet(packet.0) {
            Some(clock) => self.add_to_tables(Packet(&clock), into),
            None => self.counts.stray += 1,
        }
    }

    fn begin_unit(&mut self, packet: Packet<'_>) {
        let pid = packet.pid();
        let head = PesHeader::read(packet.payload());
        // By the order in which units begin: the first one's time is where the time line begins.
        let time = head.and_then(|head| head.dts).map(|dts| self.unit_time(pid, dts));
        let Some(stream) = self.streams.get_mut(&pid) else { return };
        stream.unit.is_open = true;
        stream.unit.time = time;
        // A video's length is seldom there, and where it is, not always right.
        if stream.codec.is_audio() {
            stream.unit.length = head.and_then(|head| head.length);
        }
    }

    /// The time of a unit with this DTS.
    fn unit_time(&mut self, pid: u16, dts: u64) -> Duration {
        let restarts = self.line.restarts();
        let Some(stream) = self.streams.get_mut(&pid) else { return self.line.newest() };
        let time = self.line.decoding_time(&mut stream.clock, dts);
        if self.line.restarts() > restarts {
            self.warnings.add(InputWarning::ClockRestarted { pid });
        }
        time
    }

    fn append_to_unit(&mut self, packet: Packet<'_>) {
        let pid = packet.pid();
        let Some(stream) = self.streams.get_mut(&pid) else { return };
        let unit = &mut stream.unit;
        unit.payload += packet.payload().len();
        unit.has_random_access |= packet.is_random_access();
        unit.is_scrambled |= packet.is_scrambled();
        if unit.is_damaged {
            return;
        }
        let length = unit.packets.len() + PACKET;
        let warning = if length > self.limits.frame {
            InputWarning::TooLarge { pid, nal: stream.newest_nal(), limit: self.limits.frame }
        } else if self.unit_bytes + PACKET > self.limits.waiting {
            InputWarning::BufferFull { pid, limit: self.limits.waiting }
        } else {
            unit.packets.extend_from_slice(packet.0);
            self.unit_bytes += PACKET;
            return;
        };
        self.warnings.add(warning);
        self.unit_bytes -= stream.unit.packets.len();
        stream.unit.packets = BytesMut::new();
        stream.unit.is_damaged = true;
    }

    /// Completes the unit of this PID.
    fn complete_unit(&mut self, pid: u16, into: &mut Vec<Frame>) {
        let Some(stream) = self.streams.get_mut(&pid).filter(|stream| stream.unit.is_open) else {
            return;
        };
        let unit = std::mem::take(&mut stream.unit);
        self.unit_bytes -= unit.packets.len();
        let is_short = unit.length.is_some_and(|length| unit.payload < length);
        let pes = pes::payload(&unit.packets);
        let head = PesHeader::read(&pes).filter(|_| !unit.is_damaged && !is_short);
        let Some(head) = head else {
            if !unit.is_damaged {
                self.warnings.add(InputWarning::Corrupt { pid, units: 1 });
            }
            stream.break_chain();
            self.counts.dropped += 1;
            return;
        };
        let time = match (unit.time, head.dts) {
            (Some(time), _) => time,
            (None, Some(dts)) => self.unit_time(pid, dts),
            (None, None) => self.line.newest(),
        };
        let Some(stream) = self.streams.get_mut(&pid) else { return };
        let Some(frame) = stream.complete_frame(&unit, head, &pes, time, pid, &mut self.warnings)
        else {
            self.counts.dropped += 1;
            return;
        };
        self.push_frame(frame, into);
    }

    /// Marks the unit of an incomplete last packet as damaged.
    fn finish_bytes(&mut self) {
        let rest = std::mem::take(&mut self.waiting);
        self.bytes_read += rest.len() as u64;
        if !self.is_synchronised && !rest.is_empty() {
            return self.warnings.add(InputWarning::Unsynchronised { bytes: rest.len() as u64 });
        }
        let Some(head) = rest.first_chunk::<4>().filter(|head| head[0] == SYNC) else { return };
        let pid = u16::from(head[1] & 0x1f) << 8 | u16::from(head[2]);
        let is_within = head[1] & 0x40 == 0;
        if let Some(stream) = self.streams.get_mut(&pid).filter(|_| is_within) {
            stream.unit.is_damaged = true;
            self.warnings.add(InputWarning::Corrupt { pid, units: 1 });
        }
    }
}

/// The number of bytes before the next packet, and whether that is certain.
fn synchronise(bytes: &[u8], is_end: bool) -> (usize, bool) {
    let mut at = 0;
    while let Some(next) = memchr::memchr(SYNC, &bytes[at..]) {
        at += next;
        let others = [bytes.get(at + PACKET), bytes.get(at + 2 * PACKET)];
        let is_known = others.iter().all(Option::is_some) || is_end && bytes.len() >= at + PACKET;
        if others.iter().flatten().all(|byte| **byte == SYNC) {
            return (at, is_known);
        }
        at += 1;
    }
    (bytes.len(), false)
}

/// A stream that a map names.
#[derive(Clone, Copy, Debug)]
struct ListedStream {
    codec: Codec,
    program: u16,
    track: u8,
    is_shared: bool,
}

impl Unit {
    /// Whether it has its announced length.
    fn is_complete(&self) -> bool {
        self.length.is_some_and(|length| self.payload >= length)
    }
}

impl ElementaryStream {
    fn new(codec: Codec, program: u16, limit: usize) -> Self {
        let syntax = match codec {
            Codec::H264 => Some(Syntax::H264),
            Codec::H265 => Some(Syntax::H265),
            _ => None,
        };
        // Where nothing tells what can be decoded, all is handed on.
        let chain = if syntax.is_some() { ReferenceChain::Broken } else { ReferenceChain::Intact };
        Self {
            codec,
            program,
            track: 0,
            classifier: syntax.map(PictureClassifier::new),
            chain,
            clock: StreamClock::default(),
            counter: ContinuityCounter::default(),
            unit: Unit::default(),
            has_delimiters: false,
            waits_since: None,
            has_key: false,
            limit,
        }
    }

    fn syntax(&self) -> Option<Syntax> {
        match self.codec {
            Codec::H264 => Some(Syntax::H264),
            Codec::H265 => Some(Syntax::H265),
            _ => None,
        }
    }

    /// Records missing packets of the present unit, and perhaps of whole units after it.
    fn record_gap(&mut self, pid: u16, warnings: &mut Warnings) {
        if self.unit.is_open && !self.unit.is_damaged {
            self.unit.is_damaged = true;
            warnings.add(InputWarning::Corrupt { pid, units: 1 });
        }
        self.break_chain();
    }

    /// Records a missing unit. Streams of other codecs without marked key frames do not wait for one.
    fn break_chain(&mut self) {
        if self.classifier.is_some() || self.has_key {
            self.chain.record_loss(FrameClass::Reference);
        }
    }

    /// Whether the PES packet that begins here continues the picture: it has no time, and no delimiter although others
    /// have one.
    fn is_continuation(&self, packet: Packet<'_>) -> bool {
        let Some(syntax) = self.syntax().filter(|_| self.has_delimiters && self.unit.is_open)
        else {
            return false;
        };
        let payload = packet.payload();
        PesHeader::read(payload).is_some_and(|head| {
            let body = payload.get(head.body..).unwrap_or_default();
            let first = nal_units(body).next();
            head.pts.is_none()
                && first.is_none_or(|nal| syntax.role(nal) != crate::nal::NalRole::Delimiter)
        })
    }

    /// The type of the newest NAL unit of the unit; 255 if there is none.
    fn newest_nal(&self) -> u8 {
        let pes = pes::payload(&self.unit.packets);
        let newest = nal_units(&pes).last();
        self.syntax().zip(newest).map_or(255, |(syntax, nal)| syntax.kind(nal))
    }

    /// The frame of a complete unit; `None` if it cannot be decoded.
    fn complete_frame(
        &mut self,
        unit: &Unit,
        head: PesHeader,
        pes: &[u8],
        time: Duration,
        pid: u16,
        warnings: &mut Warnings,
    ) -> Option<Frame> {
        let body = pes.get(head.body..).unwrap_or_default();
        let classified = self.classify(unit, body, time, pid, warnings);
        let class = classified.class;
        if class.is_video() && !self.chain.advance(class, head.pts) {
            self.await_key_frame(time, pid, warnings);
            return None;
        }
        self.waits_since = None;
        self.has_key |= class == FrameClass::Key;
        let mut bytes = Bytes::copy_from_slice(&unit.packets);
        if let (Some(syntax), Some(classifier)) = (self.syntax(), &self.classifier)
            && class == FrameClass::Key
            && !classified.has_parameter_sets
            && !classifier.parameter_sets().is_empty()
            && !unit.is_scrambled
        {
            let made = pes::with_sets(&unit.packets, syntax, classifier.parameter_sets());
            bytes = if made.len() <= self.limit { made } else { bytes };
        }
        Some(Frame { track: self.track, class, time, bytes })
    }

    fn classify(
        &mut self,
        unit: &Unit,
        body: &[u8],
        time: Duration,
        pid: u16,
        warnings: &mut Warnings,
    ) -> Classification {
        let mark = if unit.has_random_access { FrameClass::Key } else { FrameClass::Reference };
        let class = if self.codec.is_audio() { FrameClass::Audio } else { mark };
        let unknown = Classification { class, has_delimiter: false, has_parameter_sets: false };
        if unit.is_scrambled && self.codec.is_video() {
            warnings.add(InputWarning::Scrambled { pid });
            return unknown;
        }
        let Some(classifier) = &mut self.classifier else { return unknown };
        let classified = classifier.classify(body, time);
        self.has_delimiters = classified.has_delimiter;
        classified
    }

    /// Records a picture that is dropped for lack of a key frame.
    fn await_key_frame(&mut self, time: Duration, pid: u16, warnings: &mut Warnings) {
        let since = *self.waits_since.get_or_insert(time);
        if time.saturating_sub(since) >= NO_KEY {
            warnings.add(InputWarning::NoKeyFrame { pid, seconds: NO_KEY.as_secs() });
            self.waits_since = Some(time);
        }
    }
}
