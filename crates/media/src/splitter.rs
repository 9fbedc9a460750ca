//! Splits a transport stream into frames.

use crate::{
    Codec, Frame, FrameClass, InputWarning, PACKET,
    chain::ReferenceChain,
    clock,
    dts_timeline::{DtsTimeline, StreamClock},
    input_warning::Warnings,
    nal::{Classification, PictureClassifier, Syntax, nal_units},
    packet::{Continuity, ContinuityCounter, NULL_PID, Packet, RawPacket, SYNC},
    parameter_sets,
    pes::{self, PesHeader},
    tables::Programs,
};
use bytes::{Buf, Bytes, BytesMut};
use std::{collections::BTreeMap, time::Duration};

/// The maximum number of tracks of a stream.
pub const MAX_TRACKS: usize = 16;

/// If the PMTs of some programs are missing this many bytes after the first one, tracks are assigned without them.
const PATIENCE: u64 = 2_000_000;

/// The size of input without tables after which a warning is due: 2 s at 20 Mbit/s, while tables usually repeat every
/// 0.1 s.
const NO_TABLES: u64 = 5_000_000;

/// The time without a key frame after which a warning is due.
const NO_KEY: Duration = Duration::from_secs(10);

/// The maximum number of packets of one frame of tables.
const MAX_TABLES_PACKETS: usize = 64;

/// Lower PIDs are reserved for tables.
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
    /// The number of its program.
    pub program: u16,
    pub pid: u16,
    pub codec: Codec,
    /// Its index among the videos of its program.
    nth: usize,
}

/// Splits a transport stream into frames. The frames do not depend on how the bytes are cut into pieces.
///
/// A unit is complete when the next one of its PID starts; a unit of audio also when it has its announced length.
/// Pictures that cannot be decoded are dropped: those before the first key frame, and those from a damaged one to the
/// next key frame. Each key frame of H.264 and H.265 includes its parameter sets.
#[derive(Debug)]
pub struct TsSplitter {
    limits: Limits,
    waiting: BytesMut,
    is_synchronised: bool,
    /// The PID of the newest packet, which is damaged if no packet follows it directly.
    newest_pid: u16,
    bytes_read: u64,
    programs: Programs,
    /// The number of bytes before the first PMT.
    first_map: Option<u64>,
    has_streams: bool,
    streams: BTreeMap<u16, ElementaryStream>,
    tracks: Vec<TrackInfo>,
    line: DtsTimeline,
    /// The size of all incomplete units together, bytes.
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
    /// Whether units start with an access unit delimiter.
    has_delimiters: bool,
    /// The time of the first picture that was dropped because there was no key frame.
    waits_since: Option<Duration>,
    /// Whether there was a key frame.
    has_key: bool,
    /// The maximum size of a frame, bytes.
    limit: usize,
}

/// The packets of an incomplete unit.
#[derive(Debug, Default)]
struct Unit {
    packets: BytesMut,
    is_open: bool,
    /// Whether packets of it are missing or were dropped.
    is_damaged: bool,
    is_scrambled: bool,
    has_random_access: bool,
    /// The size of its payload so far, and its announced size if known, bytes.
    payload: usize,
    length: Option<usize>,
    /// Its time; `None` if its first packet does not include the complete header.
    time: Option<Duration>,
}

impl Default for TsSplitter {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl TsSplitter {
    /// Creates a splitter that accepts input within these bounds.
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

    /// Records that no packet follows the newest one directly: bytes are missing or inserted, probably in that packet.
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
            // Before the PMTs it is unknown to which stream it belongs.
            self.counts.stray += 1;
        }
        self.update_streams_late(into);
    }

    /// Warns once if there are no tables.
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

    /// Adds a packet to the current frame of tables, which ends at a packet of another PID.
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
        into.push(Frame { track: 0, class: FrameClass::Tables, time: self.line.newest(), bytes });
    }

    /// Emits a complete frame, after the tables before it.
    fn push_frame(&mut self, frame: Frame, into: &mut Vec<Frame>) {
        self.flush_tables(into);
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
        // Units of ended streams precede the tables that end them.
        self.add_to_tables(packet, into);
    }

    /// Stops waiting for missing PMTs.
    fn update_streams_late(&mut self, into: &mut Vec<Frame>) {
        let is_late = self.first_map.is_some_and(|at| self.bytes_read - at > PATIENCE);
        if is_late && !self.has_streams {
            self.update_streams(into);
        }
    }

    /// Starts to read the streams that the PMTs list, and ends the others.
    fn update_streams(&mut self, into: &mut Vec<Frame>) {
        self.has_streams = true;
        let listed = self.list_streams();
        let is_same = |pid: u16, stream: &ElementaryStream| {
            listed
                .get(&pid)
                .is_some_and(|entry| (entry.codec, entry.program) == (stream.codec, stream.program))
        };
        let ended: Vec<u16> = self
            .streams
            .iter()
            .filter(|(pid, stream)| !is_same(**pid, stream))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in ended {
            self.complete_unit(pid, into);
            self.streams.remove(&pid);
        }
        for (pid, entry) in listed {
            let stream = self.streams.entry(pid).or_insert_with(|| {
                ElementaryStream::new(entry.codec, entry.program, self.limits.frame)
            });
            stream.track = entry.track;
        }
    }

    /// Collects the streams that the PMTs list, within the bounds.
    fn list_streams(&mut self) -> BTreeMap<u16, ListedStream> {
        let mut listed: BTreeMap<u16, ListedStream> = BTreeMap::new();
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
                if let Some(known) = listed.get_mut(&pid) {
                    // Several programs share it.
                    known.is_shared = true;
                    continue;
                }
                if listed.len() >= self.limits.streams {
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
                    let entry =
                        ListedStream { codec, program: program.number, track, is_shared: false };
                    listed.insert(pid, entry);
                }
            }
        }
        self.assign_audio_tracks(&mut listed);
        listed
    }

    /// If there are several programs, assigns the audio of each one to the track of its video.
    fn assign_audio_tracks(&self, listed: &mut BTreeMap<u16, ListedStream>) {
        let has_several = self.programs.all().len() > 1;
        for entry in
            listed.values_mut().filter(|own| own.codec.is_audio() && !own.is_shared && has_several)
        {
            let index = self.tracks.iter().position(|track| track.program == entry.program);
            entry.track = index.map_or(0, |index| index as u8);
        }
    }

    /// Returns the track of this video: its present one, that of its predecessor in the program or in an ended program,
    /// or a new one.
    fn assign_track(&mut self, info: TrackInfo) -> Option<u8> {
        let is_own = |track: &TrackInfo| track.program == info.program && track.nth == info.nth;
        let has_ended = |track: &TrackInfo| {
            let is_present =
                self.programs.all().iter().any(|program| program.number == track.program);
            !is_present && track.nth == info.nth
        };
        let index = self.tracks.iter().position(is_own);
        let index = index.or_else(|| self.tracks.iter().position(has_ended));
        if let Some(index) = index {
            self.tracks[index] = info;
        } else if self.tracks.len() < self.limits.tracks.min(MAX_TRACKS) {
            self.tracks.push(info);
        } else {
            let limit = self.limits.tracks.min(MAX_TRACKS);
            self.warnings.add(InputWarning::TooMany { what: "videos", pid: info.pid, limit });
            return None;
        }
        Some(index.unwrap_or(self.tracks.len() - 1) as u8)
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
        match clock::clock_packet(packet.0) {
            Some(clock) => self.add_to_tables(Packet(&clock), into),
            None => self.counts.stray += 1,
        }
    }

    fn begin_unit(&mut self, packet: Packet<'_>) {
        let pid = packet.pid();
        let head = PesHeader::read(packet.payload());
        // Times are mapped in the order in which units start: the timeline starts with the first one.
        let time = head.and_then(|head| head.dts).map(|dts| self.unit_time(pid, dts));
        let Some(stream) = self.streams.get_mut(&pid) else { return };
        stream.unit.is_open = true;
        stream.unit.time = time;
        // The announced length of video is usually missing and sometimes wrong.
        if stream.codec.is_audio() {
            stream.unit.length = head.and_then(|head| head.length);
        }
    }

    /// Maps the DTS of a unit to its time.
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

/// Returns the number of bytes before the next packet, and whether that is certain.
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

/// An elementary stream of a PMT.
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
        // Pictures of other codecs are not classified, so all are emitted.
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

    /// Records missing packets of the current unit, and perhaps complete units after it.
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

    /// Whether the PES packet that starts here continues the current picture: it has no time and, unlike other
    /// pictures, no delimiter.
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

    /// Returns the frame of a complete unit; `None` if it cannot be decoded.
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
            let made = parameter_sets::insert(&unit.packets, syntax, classifier.parameter_sets());
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

    /// Records a picture that is dropped because there was no key frame.
    fn await_key_frame(&mut self, time: Duration, pid: u16, warnings: &mut Warnings) {
        let since = *self.waits_since.get_or_insert(time);
        if time.saturating_sub(since) >= NO_KEY {
            warnings.add(InputWarning::NoKeyFrame { pid, seconds: NO_KEY.as_secs() });
            self.waits_since = Some(time);
        }
    }
}
