//! Adds the outputs of a stream's transcoders to its ladder.

use crate::{
    Codec, Frame, FrameClass, MAX_TRACKS, PACKET,
    dts_timeline::{CLOCK, duration, ticks, wrapping_difference},
    frame_timeline::BACK,
    packet::{self, NULL_PID, Packet, RawPacket},
    tables::{MAX_PROGRAMS, Pmt, Program, Programs, StreamEntry},
};
use std::{collections::BTreeMap, ops::Range, time::Duration};
use thiserror::Error;

/// The PIDs for videos of transcoders; multiplexers count up from low ones.
const FREE_PIDS: Range<u16> = 0x1e00..0x1f00;

/// A transcoder may be this far behind its source, ticks: ffmpeg reads up to five seconds before it starts.
const MAX_LAG: i64 = 10 * CLOCK;

/// A picture may be this far ahead of the source's newest one, ticks: with another frame order its decoding times
/// differ.
const MAX_LEAD: i64 = CLOCK;

/// A transcoder's picture has other time stamps than its source.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error(
    "its time stamps are {0:.1} s off those of its input; ffmpeg keeps them with `-copyts -mpegts_copyts 1`"
)]
pub struct TimestampMismatch(f64);

/// Merges the outputs of a stream's transcoders into it, as further renditions.
///
/// A picture keeps its time stamps, which are those of the source, and gets a track and PID of its own. The PMT of the
/// source's first program with video lists the new videos, so that players see one ladder. Audio and tables are taken
/// from the source.
#[derive(Debug)]
pub struct Ladder {
    /// The programs of the source.
    programs: Programs,
    /// The tracks in the ladder, by transcoder (`None`: the source) and track in its output.
    tracks: BTreeMap<(Option<usize>, u8), u8>,
    videos: BTreeMap<u8, TranscodedVideo>,
    /// The number of changes of the videos, which is added to the version of the PMT.
    revision: u8,
    /// The continuity counter of the PMT.
    counter: u8,
    /// The DTS and time of the source's newest picture.
    newest: Option<(u64, Duration)>,
}

/// A video from a transcoder.
#[derive(Clone, Debug)]
struct TranscodedVideo {
    entry: StreamEntry,
    newest: Duration,
}

impl Default for Ladder {
    fn default() -> Self {
        Self {
            programs: Programs::new(MAX_PROGRAMS),
            tracks: BTreeMap::new(),
            videos: BTreeMap::new(),
            revision: 0,
            counter: 0,
            newest: None,
        }
    }
}

impl Ladder {
    /// Adds the source's next frame. Returns it with its track in the ladder; `None` if there are too many tracks, or
    /// if it is part of a PMT that has been replaced.
    pub fn add_source(&mut self, frame: Frame) -> Option<Frame> {
        match frame.class {
            FrameClass::Tables => self.add_source_tables(frame),
            FrameClass::Audio => {
                let track = self.tracks.get(&(None, frame.track)).copied();
                Some(Frame { track: track.unwrap_or(frame.track), ..frame })
            }
            _ => {
                self.newest = frame.dts().map(|dts| (dts, frame.time)).or(self.newest);
                Some(Frame { track: self.assign_track(None, frame.track)?, ..frame })
            }
        }
    }

    /// Adds a frame of a transcoder's output, with the codec of its video. Appends the resulting frames of the ladder:
    /// none if it is not video, or if there are too many tracks.
    ///
    /// # Errors
    /// [`TimestampMismatch`]; nothing is appended.
    pub fn add_transcoded(
        &mut self,
        transcoder: usize,
        frame: &Frame,
        codec: Codec,
        into: &mut Vec<Frame>,
    ) -> Result<(), TimestampMismatch> {
        let (Some(dts), Some((newest, time))) = (frame.dts(), self.newest) else { return Ok(()) };
        let Some(kind) = codec.video_type().filter(|_| frame.class.is_video()) else {
            return Ok(());
        };
        let passed = wrapping_difference(dts as i64, newest as i64);
        if !(-MAX_LAG..=MAX_LEAD).contains(&passed) {
            return Err(TimestampMismatch(passed.abs() as f64 / CLOCK as f64));
        }
        let time = duration(ticks(time) as i64 + passed);
        let Some(track) = self.assign_track(Some(transcoder), frame.track) else { return Ok(()) };
        if self.videos.get(&track).is_none_or(|video| video.entry.kind != kind) {
            let Some(pid) = self.free_pid() else { return Ok(()) };
            let entry = StreamEntry { kind, pid, descriptors: Vec::new() };
            self.videos.insert(track, TranscodedVideo { entry, newest: time });
            self.revision = self.revision.wrapping_add(1);
            let pmt = self.pmt_packets();
            into.extend(pmt.map(|bytes| tables_frame(bytes, time)));
        }
        let Some(video) = self.videos.get_mut(&track) else { return Ok(()) };
        // A restarted transcoder repeats pictures, so time must not go back; but a time far ahead must not stay.
        let is_jump = video.newest.saturating_sub(time) > BACK;
        video.newest = if is_jump { time } else { video.newest.max(time) };
        let bytes = with_pid(&frame.bytes, video.entry.pid).into();
        into.push(Frame { track, class: frame.class, time: video.newest, bytes });
        Ok(())
    }

    /// The newest tables of the source, for a transcoder that starts; `None` before they are received.
    pub fn tables(&self) -> Option<Frame> {
        let packets = self.programs.packets();
        let time = self.newest.map_or(Duration::ZERO, |(_, time)| time);
        (!packets.is_empty()).then(|| tables_frame(packets, time))
    }

    fn add_source_tables(&mut self, frame: Frame) -> Option<Frame> {
        let (mut is_changed, mut is_start) = (false, false);
        for packet in frame.bytes.as_chunks::<PACKET>().0 {
            let packet = Packet(packet);
            is_start |= packet.is_start();
            if self.programs.is_table(packet.pid()) {
                is_changed |= self.programs.push(packet).has_changed;
            }
        }
        if is_changed {
            self.move_to_free_pids();
        }
        let pid = frame.bytes.first_chunk().map_or(NULL_PID, |packet| Packet(packet).pid());
        let is_pmt = self.program().is_some_and(|program| program.pmt_pid == pid);
        if self.videos.is_empty() || !is_pmt {
            return Some(frame);
        }
        match self.pmt_packets() {
            Some(packets) if is_start || is_changed => {
                Some(Frame { bytes: packets.as_flattened().to_vec().into(), ..frame })
            }
            Some(_) => None,
            None => Some(frame),
        }
    }

    /// The program to which the videos are added.
    fn program(&self) -> Option<&Program> {
        let has_video = |pmt: &Pmt| pmt.streams.iter().any(|entry| entry.codec().is_video());
        self.programs.all().iter().find(|program| program.pmt.as_ref().is_some_and(has_video))
    }

    /// The packets of the PMT with all videos, and of other PMTs on its PID; `None` if there is no PMT or it becomes
    /// too long.
    fn pmt_packets(&mut self) -> Option<Vec<RawPacket>> {
        let program = self.program()?;
        let mut pmt = program.pmt.clone()?;
        pmt.streams.extend(self.videos.values().map(|video| video.entry.clone()));
        let version = program.version().wrapping_add(self.revision);
        let (number, pid) = (program.number, program.pmt_pid);
        let mut packets = packet::packetize_section(pid, &pmt.section(number, version)?);
        let others = self.programs.all().iter();
        let others = others.filter(|other| other.pmt_pid == pid && other.number != number);
        for other in others.filter(|other| !other.section().is_empty()) {
            packets.extend(packet::packetize_section(pid, other.section()));
        }
        for packet in &mut packets {
            packet[3] = packet[3] & 0xf0 | self.counter;
            self.counter = (self.counter + 1) & 0x0f;
        }
        Some(packets)
    }

    /// Returns the track of a video in the ladder. A new one of the source keeps its number if that is free, others get
    /// the next number; `None` if there are too many.
    fn assign_track(&mut self, transcoder: Option<usize>, own: u8) -> Option<u8> {
        if let Some(track) = self.tracks.get(&(transcoder, own)) {
            return Some(*track);
        }
        let highest = self.tracks.values().max().copied();
        let next = highest.map_or(0, |highest| highest + 1);
        let is_free = transcoder.is_none() && self.tracks.values().all(|track| *track != own);
        let track = if is_free { own } else { next };
        (usize::from(track) < MAX_TRACKS)
            .then(|| *self.tracks.entry((transcoder, own)).or_insert(track))
    }

    fn is_used(&self, pid: u16) -> bool {
        self.programs.is_table(pid) || self.programs.find_stream(pid).is_some()
    }

    fn free_pid(&self) -> Option<u16> {
        let is_made = |pid| self.videos.values().any(|video| video.entry.pid == pid);
        FREE_PIDS.into_iter().find(|pid| !self.is_used(*pid) && !is_made(*pid))
    }

    /// Changes the PIDs of videos whose PIDs the source has started to use.
    fn move_to_free_pids(&mut self) {
        let tracks: Vec<u8> = self.videos.keys().copied().collect();
        for track in tracks {
            if self.videos.get(&track).is_some_and(|video| self.is_used(video.entry.pid))
                && let Some(pid) = self.free_pid()
                && let Some(video) = self.videos.get_mut(&track)
            {
                video.entry.pid = pid;
            }
        }
    }
}

fn tables_frame(packets: Vec<RawPacket>, time: Duration) -> Frame {
    let bytes = packets.as_flattened().to_vec().into();
    Frame { track: 0, class: FrameClass::Tables, time, bytes }
}

/// Replaces the PID of the packets and removes their clock references, because those of the source are used.
fn with_pid(packets: &[u8], pid: u16) -> Vec<u8> {
    let [high, low] = pid.to_be_bytes();
    let mut packets = packets.as_chunks::<PACKET>().0.to_vec();
    for packet in &mut packets {
        packet[1] = packet[1] & 0xe0 | high & 0x1f;
        packet[2] = low;
        remove_clock(packet);
    }
    packets.as_flattened().to_vec()
}

/// Replaces the clock reference of an adaptation field by stuffing (2.4.3.4).
fn remove_clock(packet: &mut RawPacket) {
    let end = 5 + usize::from(packet[4]);
    let has_clock = packet[3] & 0x20 != 0 && packet[4] >= 7 && packet[5] & 0x10 != 0;
    if has_clock && end <= PACKET {
        packet[5] &= !0x10;
        packet.copy_within(12..end, 6);
        packet[end - 6..end].fill(0xff);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Output, TsJoiner, TsSplitter};

    const WITH_B_FRAMES: &[u8] = include_bytes!("../samples/h264-b.ts");

    fn split(bytes: &[u8]) -> Vec<Frame> {
        let (mut splitter, mut frames) = (TsSplitter::default(), Vec::new());
        splitter.push(bytes, &mut frames);
        splitter.end(&mut frames);
        frames
    }

    /// The frames of a ladder whose transcoder copies each frame of its source, `lag` frames later.
    fn copied(frames: &[Frame], lag: usize) -> (Ladder, Vec<Frame>) {
        let (mut ladder, mut all) = (Ladder::default(), Vec::new());
        for at in 0..frames.len() + lag {
            all.extend(frames.get(at).and_then(|frame| ladder.add_source(frame.clone())));
            if let Some(frame) = at.checked_sub(lag).and_then(|at| frames.get(at)) {
                ladder
                    .add_transcoded(0, frame, Codec::H264, &mut all)
                    .expect("its times are the source's");
            }
        }
        (ladder, all)
    }

    fn join(frames: &[Frame], output: Output, track: Option<u8>) -> Vec<u8> {
        let (mut joiner, mut bytes) = (TsJoiner::new(output), Vec::new());
        for frame in frames {
            if let Some(track) = track {
                joiner.select(track);
            }
            joiner.push(frame, &mut bytes);
        }
        joiner.end(&mut bytes);
        bytes
    }

    fn pictures(frames: &[Frame], track: u8) -> Vec<(FrameClass, Duration)> {
        let of_track = frames.iter().filter(|frame| frame.track == track && frame.class.is_video());
        of_track.map(|frame| (frame.class, frame.time)).collect()
    }

    #[test]
    fn a_transcoders_video_is_another_rendition_of_its_source() {
        let frames = split(WITH_B_FRAMES);
        for lag in [0, 7] {
            let (_, all) = copied(&frames, lag);
            assert_eq!(pictures(&all, 0), pictures(&frames, 0));
            assert_eq!(pictures(&all, 1), pictures(&frames, 0), "{lag}");
            let bytes = join(&all, Output::AsSent, None);
            let (mut splitter, mut again) = (TsSplitter::default(), Vec::new());
            splitter.push(&bytes, &mut again);
            splitter.end(&mut again);
            assert_eq!(splitter.take_warnings(), []);
            let tracks = splitter.tracks();
            assert_eq!((tracks.len(), tracks[1].program), (2, tracks[0].program));
            for track in [0, 1] {
                assert_eq!(pictures(&again, track).len(), pictures(&frames, 0).len());
            }
        }
    }

    #[test]
    fn each_rendition_alone_is_a_complete_video_with_a_clock() {
        let frames = split(WITH_B_FRAMES);
        let (_, all) = copied(&frames, 3);
        for track in [0, 1] {
            let bytes = join(&all, Output::OneVideo, Some(track));
            let (mut splitter, mut again) = (TsSplitter::default(), Vec::new());
            splitter.push(&bytes, &mut again);
            splitter.end(&mut again);
            assert_eq!((splitter.take_warnings(), splitter.tracks().len()), (vec![], 1));
            assert_eq!(pictures(&again, 0).len(), pictures(&frames, 0).len(), "{track}");
            assert!(again.iter().any(|frame| frame.clock().is_some()));
        }
    }

    #[test]
    fn a_player_that_started_before_the_second_video_continues_with_one() {
        let frames = split(WITH_B_FRAMES);
        let begun = frames.len() / 3;
        let (mut ladder, mut all) = (Ladder::default(), Vec::new());
        for (at, frame) in frames.iter().enumerate() {
            all.extend(ladder.add_source(frame.clone()));
            if at >= begun {
                ladder
                    .add_transcoded(0, frame, Codec::H264, &mut all)
                    .expect("its times are the source's");
            }
        }
        assert!(!pictures(&all, 1).is_empty());
        let bytes = join(&all, Output::Detected, Some(0));
        let (mut splitter, mut again) = (TsSplitter::default(), Vec::new());
        splitter.push(&bytes, &mut again);
        splitter.end(&mut again);
        assert_eq!((splitter.take_warnings(), splitter.tracks().len()), (vec![], 1));
        let detected = join(&frames, Output::Detected, Some(0));
        let (mut splitter, mut alone) = (TsSplitter::default(), Vec::new());
        splitter.push(&detected, &mut alone);
        splitter.end(&mut alone);
        assert_eq!(pictures(&again, 0).len(), pictures(&alone, 0).len(), "no picture is missing");
    }

    #[test]
    fn other_times_than_the_sources_are_refused() {
        let frames = split(include_bytes!("../samples/h264-low-latency.ts"));
        let mut ladder = Ladder::default();
        let key = frames.iter().find(|frame| frame.class == FrameClass::Key).expect("it has one");
        let mut into = Vec::new();
        assert_eq!(
            ladder.add_transcoded(0, key, Codec::H264, &mut into),
            Ok(()),
            "nothing to compare with"
        );
        let dts = key.dts().expect("it has one");
        ladder.newest = Some(((dts + 11 * CLOCK as u64) % (1 << 33), Duration::from_secs(11)));
        let error =
            ladder.add_transcoded(0, key, Codec::H264, &mut into).expect_err("it is too old");
        assert!(error.to_string().contains("11.0 s off"), "{error}");
        assert_eq!(into, []);
        // A clock that wraps is the same clock.
        ladder.newest = Some(((dts + 3000) % (1 << 33), Duration::from_secs(9)));
        assert_eq!(ladder.add_transcoded(0, key, Codec::H264, &mut into), Ok(()));
        assert!(into.last().is_some_and(|made| made.time.as_millis() == 8966), "{into:?}");
    }

    #[test]
    fn a_picture_of_the_far_future_does_not_hold_the_time_of_its_renditions() {
        let mut frames = split(WITH_B_FRAMES);
        let is_reference = |frame: &&mut Frame| frame.class == FrameClass::Reference;
        let far = frames.iter_mut().filter(is_reference).nth(3).expect("it has twelve");
        far.time = Duration::from_micros(u64::MAX / 2);
        let (_, all) = copied(&frames, 0);
        let times = |track| pictures(&all, track).into_iter().map(|(_, time)| time);
        assert_eq!(times(1).next_back(), times(0).next_back());
        assert!(times(1).next_back() < Some(Duration::from_secs(3)));
    }

    #[test]
    fn videos_of_the_source_that_begin_late_get_the_next_track() {
        let frames = split(include_bytes!("../samples/ladder.ts"));
        let second = frames.iter().filter(|frame| frame.track == 1 && frame.class.is_video());
        let first: Vec<Frame> = frames.iter().filter(|frame| frame.track == 0).cloned().collect();
        let (mut ladder, mut all) = copied(&first, 0);
        assert_eq!(pictures(&all, 1).len(), pictures(&first, 0).len());
        all.clear();
        all.extend(second.filter_map(|frame| ladder.add_source(frame.clone())));
        assert!(!all.is_empty() && all.iter().all(|frame| frame.track == 2));
    }

    #[test]
    fn a_clock_reference_is_replaced_by_stuffing() {
        let mut packet = [0xaa; PACKET];
        packet[..14].copy_from_slice(&[0x47, 0x41, 0, 0x3a, 9, 0x52, 1, 2, 3, 4, 5, 6, 1, 0x77]);
        remove_clock(&mut packet);
        assert_eq!(packet[4..14], [9, 0x42, 1, 0x77, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(Packet(&packet).payload(), [0xaa; PACKET - 14]);
    }
}
