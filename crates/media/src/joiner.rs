//! Joins the frames that remain after drops into a transport stream.

use crate::{
    Frame, FrameClass, FrameTimeline, PACKET,
    chain::ReferenceChain,
    clock::{self, ProgramClock},
    packet::{self, NULL_PID, Packet, RawPacket, SYNC},
    pes::PesHeader,
    rendition::{PictureUse, RenditionSelector},
    splitter::MAX_TRACKS,
    tables::{MAX_PROGRAMS, PAT_PID, Pmt, Programs, StreamEntry, pat_section},
};
use std::{collections::BTreeMap, time::Duration};

/// The maximum time between tables.
const TABLES_EVERY: Duration = Duration::from_millis(500);

/// The program and the PIDs of an output with one video.
const PROGRAM: u16 = 1;
const PMT_PID: u16 = 0x1000;
const VIDEO_PID: u16 = 0x100;
const FIRST_OTHER_PID: u16 = 0x110;

/// The maximum number of audio and other streams besides the one video.
const MAX_OTHERS: usize = 32;

/// The programs of a joiner's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// All programs and videos of the input, with their PIDs.
    #[default]
    AsSent,
    /// One program with one video: that of [`TsJoiner::select`].
    OneVideo,
    /// [`Self::OneVideo`] as soon as the tables list several videos, else [`Self::AsSent`]. Writes nothing before the
    /// tables.
    Detected,
}

/// The counters of a joiner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinerCounts {
    /// Pictures that were written.
    pub shown: u64,
    /// Pictures that were withheld because they cannot be decoded or belong to another rendition.
    pub withheld: u64,
    /// The number of rendition switches.
    pub switches: u64,
}

/// Joins frames into a transport stream without gaps and without frames that cannot be decoded.
///
/// It renumbers continuity counters, repeats tables and keeps the clock references of withheld frames. After a lost key
/// or reference frame ([`Self::record_loss`]) a track resumes at its next key frame.
#[derive(Debug)]
pub struct TsJoiner {
    output: Output,
    programs: Programs,
    chains: [ReferenceChain; MAX_TRACKS],
    rendition: RenditionSelector,
    counters: BTreeMap<u16, u8>,
    /// The clocks of programs by their PID in the output.
    clocks: BTreeMap<u16, ProgramClock>,
    line: FrameTimeline,
    /// The newest time when tables were written.
    tables_at: Option<Duration>,
    /// Whether no frame was written after the last tables.
    are_tables_fresh: bool,
    one_video: OneVideo,
    /// Whether the output was requested as [`Output::Detected`].
    is_detected: bool,
    /// The track and PID of the newest picture of an output as sent.
    newest_video: Option<(u8, u16)>,
    /// The number of key frames before the tables.
    early_keys: u32,
    counts: JoinerCounts,
}

/// The program of an output with one video.
#[derive(Debug, Default)]
struct OneVideo {
    /// The PIDs in the output by those in the input.
    pids: BTreeMap<u16, u16>,
    /// The PID of the program's clock in the input.
    clock_pid: u16,
    output_clock_pid: u16,
    pmt: Option<Pmt>,
    version: u8,
    pat_version: u8,
    /// The time of the newest audio frame by PID of the output.
    newest_audio: BTreeMap<u16, Duration>,
}

impl Default for TsJoiner {
    fn default() -> Self {
        Self::new(Output::default())
    }
}

impl TsJoiner {
    /// Creates a joiner with these programs in its output.
    pub fn new(output: Output) -> Self {
        Self {
            output,
            programs: Programs::new(MAX_PROGRAMS),
            chains: [ReferenceChain::default(); MAX_TRACKS],
            rendition: RenditionSelector::default(),
            counters: BTreeMap::new(),
            clocks: BTreeMap::new(),
            line: FrameTimeline::default(),
            tables_at: None,
            are_tables_fresh: false,
            one_video: OneVideo::default(),
            is_detected: output == Output::Detected,
            newest_video: None,
            early_keys: 0,
            counts: JoinerCounts::default(),
        }
    }

    /// Selects the rendition of an output with one video. It starts at its next key frame that is not earlier than the
    /// written pictures. All renditions have one clock.
    pub fn select(&mut self, track: u8) {
        self.rendition.select(track);
    }

    /// The rendition of an output with one video; `None` before its first key frame.
    pub fn selected(&self) -> Option<u8> {
        self.rendition.current()
    }

    /// The counters since the beginning.
    pub fn counts(&self) -> JoinerCounts {
        self.counts
    }

    /// Records a lost frame. Frames that depend on it are withheld.
    pub fn record_loss(&mut self, track: u8, class: FrameClass) {
        self.rendition.record_loss(track, class);
        if let Some(chain) = self.chains.get_mut(usize::from(track)) {
            chain.record_loss(class);
        }
    }

    /// Adds a frame and appends the resulting packets.
    pub fn push(&mut self, frame: &Frame, into: &mut Vec<u8>) {
        let frame = &self.line.retime(frame);
        match (self.output, frame.class) {
            (_, FrameClass::Tables) => self.push_tables(frame, into),
            (Output::Detected, _) => self.withhold_early(frame),
            (Output::AsSent, FrameClass::Audio) => self.write_frame(frame, into),
            (Output::AsSent, _) => self.push_video(frame, into),
            (Output::OneVideo, FrameClass::Audio) => self.push_audio(frame, into),
            (Output::OneVideo, _) => {
                let mut pictures = Vec::new();
                self.rendition.push(frame, &mut pictures);
                self.write_pictures(pictures, into);
            }
        }
    }

    /// Ends the stream and appends the last packets.
    pub fn end(&mut self, into: &mut Vec<u8>) {
        let mut pictures = Vec::new();
        self.rendition.end(&mut pictures);
        self.write_pictures(pictures, into);
    }

    /// Withholds a frame before the tables. From the second key frame on, missing PMTs are not awaited.
    fn withhold_early(&mut self, frame: &Frame) {
        if frame.class.is_video() {
            self.counts.withheld += 1;
            self.early_keys += u32::from(frame.class == FrameClass::Key);
        }
        if self.early_keys > 1 {
            self.detect_output();
        }
    }

    fn detect_output(&mut self) {
        self.output = match self.programs.count_videos() {
            0 => Output::Detected,
            1 => Output::AsSent,
            _ => Output::OneVideo,
        };
    }

    fn push_video(&mut self, frame: &Frame, into: &mut Vec<u8>) {
        let pts = PesHeader::from_packets(&frame.bytes).and_then(|head| head.pts);
        let chain = self.chains.get_mut(usize::from(frame.track));
        if !chain.is_some_and(|chain| chain.advance(frame.class, pts)) {
            self.counts.withheld += 1;
            return self.write_clock(frame, into);
        }
        self.counts.shown += 1;
        self.newest_video = Some((frame.track, frame_pid(frame)));
        self.repeat_tables(frame.class == FrameClass::Key, into);
        self.write_frame(frame, into);
    }

    /// Continues with one video when the tables start to list several.
    fn switch_to_one_video(&mut self) {
        self.output = Output::OneVideo;
        self.one_video.pat_version = self.programs.pat_version().wrapping_add(1) & 0x1f;
        let Some((track, pid)) = self.newest_video else { return };
        let program = self.programs.find_stream(pid).map(|(program, ..)| program.version());
        self.one_video.version = program.unwrap_or_default();
        if let Some(chain) = self.chains.get(usize::from(track)) {
            self.rendition.continue_with(track, *chain);
        }
        self.select_program(pid);
        self.are_tables_fresh = false;
    }

    /// Writes pictures of an output with one video.
    fn write_pictures(&mut self, pictures: Vec<PictureUse>, into: &mut Vec<u8>) {
        for picture in pictures {
            let is_switch = matches!(picture, PictureUse::Switched(_));
            match picture {
                PictureUse::Withheld(frame) => {
                    self.counts.withheld += 1;
                    self.write_clock(&frame, into);
                }
                PictureUse::Shown(frame) | PictureUse::Switched(frame) => {
                    self.counts.shown += 1;
                    let pid = frame_pid(&frame);
                    if is_switch {
                        self.counts.switches += u64::from(self.counts.shown > 1);
                    }
                    if is_switch || self.one_video.video_pid() != Some(pid) {
                        self.select_program(pid);
                        self.are_tables_fresh = false;
                    }
                    self.repeat_tables(frame.class == FrameClass::Key, into);
                    self.write_frame(&frame, into);
                }
            }
        }
    }

    /// Writes audio of the selected program. At a switch between renditions with their own audio, time does not go
    /// back.
    fn push_audio(&mut self, frame: &Frame, into: &mut Vec<u8>) {
        let Some(pid) = self.one_video.pids.get(&frame_pid(frame)).copied() else { return };
        let newest = self.one_video.newest_audio.entry(pid).or_default();
        if frame.time >= *newest {
            *newest = frame.time;
            self.write_frame(frame, into);
        }
    }

    fn push_tables(&mut self, frame: &Frame, into: &mut Vec<u8>) {
        let mut is_changed = false;
        for packet in packets(frame) {
            let packet = Packet(packet);
            if self.programs.is_table(packet.pid()) {
                is_changed |= self.programs.push(packet).has_changed;
            }
        }
        if self.output == Output::Detected {
            if self.programs.is_complete() {
                self.detect_output();
            }
            return;
        }
        if self.output == Output::AsSent && self.is_detected && self.programs.count_videos() > 1 {
            self.switch_to_one_video();
        }
        if self.output == Output::AsSent {
            let is_pat = frame_pid(frame) == PAT_PID;
            self.write_frame(frame, into);
            if is_pat {
                self.tables_at = Some(self.line.newest());
                self.are_tables_fresh = true;
            }
            return;
        }
        if is_changed && let Some(pid) = self.one_video.video_pid() {
            self.select_program(pid);
        }
        let pid = frame_pid(frame);
        if self.one_video.pids.contains_key(&pid) && !has_no_payload(frame) {
            self.write_frame(frame, into);
        } else {
            self.write_clock(frame, into);
        }
    }

    /// Selects the program with this video.
    fn select_program(&mut self, video: u16) {
        let Some((_, pmt, entry)) = self.programs.find_stream(video) else { return };
        let (pmt, entry) = (pmt.clone(), entry.clone());
        self.one_video.select_program(&pmt, &entry);
    }

    /// Repeats the tables before key frames and after [`TABLES_EVERY`].
    fn repeat_tables(&mut self, is_key: bool, into: &mut Vec<u8>) {
        let newest = self.line.newest();
        let is_due = self.tables_at.is_none_or(|at| newest.saturating_sub(at) >= TABLES_EVERY);
        if !(is_due || is_key && !self.are_tables_fresh) {
            return;
        }
        let packets = match self.output {
            Output::AsSent | Output::Detected => self.programs.packets(),
            Output::OneVideo => self.one_video.packets(),
        };
        for packet in &packets {
            self.write_packet(packet, Packet(packet).pid(), into);
        }
        self.tables_at = Some(newest);
    }

    fn write_frame(&mut self, frame: &Frame, into: &mut Vec<u8>) {
        if frame.class != FrameClass::Tables {
            self.are_tables_fresh = false;
            self.insert_clock(frame, into);
        }
        for packet in packets(frame) {
            let pid = Packet(packet).pid();
            match self.output {
                Output::AsSent | Output::Detected => self.write_packet(packet, pid, into),
                Output::OneVideo => {
                    if let Some(output_pid) = self.one_video.pids.get(&pid) {
                        self.write_packet(packet, *output_pid, into);
                    }
                }
            }
        }
    }

    /// Inserts a clock reference before the frame if those of the input were dropped.
    fn insert_clock(&mut self, frame: &Frame, into: &mut Vec<u8>) {
        let dts = PesHeader::from_packets(&frame.bytes).and_then(|head| head.dts);
        let clock = self.clock_pids(frame_pid(frame)).filter(|(_, to)| *to != NULL_PID);
        let Some((dts, (from, to))) = dts.zip(clock) else { return };
        let mut own = packets(frame).map(Packet).filter(|packet| packet.pid() == from);
        let reference = own.find_map(clock::read_reference);
        let clock = self.clocks.entry(to).or_default();
        match reference {
            Some(reference) => clock.observe(reference, dts),
            None => {
                if let Some((reference, is_restarted)) = clock.due_reference(dts) {
                    self.write_packet(
                        &clock::reference_packet(to, reference, is_restarted),
                        to,
                        into,
                    );
                }
            }
        }
    }

    /// The PIDs of the clock of this PID's program, in the input and in the output.
    fn clock_pids(&self, pid: u16) -> Option<(u16, u16)> {
        if self.output == Output::OneVideo {
            let is_selected = self.one_video.pids.contains_key(&pid);
            return is_selected
                .then_some((self.one_video.clock_pid, self.one_video.output_clock_pid));
        }
        let pid = self.programs.find_stream(pid)?.1.clock_pid;
        Some((pid, pid))
    }

    /// Writes the clock references of a withheld frame.
    fn write_clock(&mut self, frame: &Frame, into: &mut Vec<u8>) {
        let Some(clocks) = frame.clock() else { return };
        for clock in clocks.as_chunks::<PACKET>().0 {
            let pid = Packet(clock).pid();
            match self.output {
                Output::AsSent | Output::Detected => self.write_packet(clock, pid, into),
                Output::OneVideo if pid == self.one_video.clock_pid => {
                    self.write_packet(clock, self.one_video.output_clock_pid, into);
                }
                Output::OneVideo => {}
            }
        }
    }

    /// Writes a packet with this PID and its next continuity counter.
    fn write_packet(&mut self, packet: &RawPacket, pid: u16, into: &mut Vec<u8>) {
        let mut packet = *packet;
        if let Some(clock) = self.clocks.get_mut(&pid)
            && let Some(reference) = clock::read_reference(Packet(&packet))
        {
            let next = clock.adjust(reference);
            if next != reference {
                clock::set_reference(&mut packet, next);
            }
        }
        let counter = self.counters.entry(pid).or_default();
        let [high, low] = pid.to_be_bytes();
        packet[1] = packet[1] & 0x60 | high & 0x1f;
        packet[2] = low;
        // A packet without payload repeats the previous counter (2.4.3.3).
        let has_payload = Packet(&packet).has_payload();
        let value = if has_payload { *counter } else { counter.wrapping_sub(1) & 0x0f };
        packet[3] = packet[3] & 0xf0 | value;
        if has_payload {
            *counter = (*counter + 1) & 0x0f;
        }
        into.extend_from_slice(&packet);
    }
}

impl OneVideo {
    /// The PID of the selected video in the input.
    fn video_pid(&self) -> Option<u16> {
        self.pids.iter().find(|(_, new)| **new == VIDEO_PID).map(|(old, _)| *old)
    }

    /// Selects a program with this video, its audio and its other streams.
    fn select_program(&mut self, pmt: &Pmt, video: &StreamEntry) {
        self.pids = BTreeMap::from([(video.pid, VIDEO_PID)]);
        self.clock_pid = pmt.clock_pid;
        let mut streams = vec![StreamEntry { pid: VIDEO_PID, ..video.clone() }];
        let others = pmt.streams.iter().filter(|entry| !entry.codec().is_video());
        for (entry, pid) in others.take(MAX_OTHERS).zip(FIRST_OTHER_PID..) {
            if self.pids.contains_key(&entry.pid) {
                continue;
            }
            self.pids.insert(entry.pid, pid);
            streams.push(StreamEntry { pid, ..entry.clone() });
        }
        // A clock on a separate PID or on that of another video moves to the PID of this video.
        self.output_clock_pid = self.pids.get(&pmt.clock_pid).copied().unwrap_or(VIDEO_PID);
        let new =
            Pmt { clock_pid: self.output_clock_pid, descriptors: pmt.descriptors.clone(), streams };
        if self.pmt.as_ref() != Some(&new) {
            self.version = self.version.wrapping_add(1) & 0x1f;
            self.pmt = Some(new);
        }
    }

    fn packets(&self) -> Vec<RawPacket> {
        let pmt = self.pmt.as_ref().and_then(|pmt| {
            // Descriptors are omitted if the section would be too long.
            let bare = || Pmt { descriptors: Vec::new(), ..pmt.clone() };
            pmt.section(PROGRAM, self.version).or_else(|| bare().section(PROGRAM, self.version))
        });
        let Some((pat, pmt)) = pat_section(PROGRAM, PMT_PID, self.pat_version).zip(pmt) else {
            return Vec::new();
        };
        let mut packets = packet::packetize_section(PAT_PID, &pat);
        packets.extend(packet::packetize_section(PMT_PID, &pmt));
        packets
    }
}

/// The packets of a frame; other bytes are skipped.
fn packets(frame: &Frame) -> impl Iterator<Item = &RawPacket> {
    frame.bytes.as_chunks::<PACKET>().0.iter().filter(|packet| packet[0] == SYNC)
}

fn frame_pid(frame: &Frame) -> u16 {
    packets(frame).next().map_or(NULL_PID, |packet| Packet(packet).pid())
}

/// Whether no packet of the frame has a payload.
fn has_no_payload(frame: &Frame) -> bool {
    packets(frame).all(|packet| !Packet(packet).has_payload())
}
