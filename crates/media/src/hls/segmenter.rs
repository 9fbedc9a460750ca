//! Turns frames into segments.

use super::{
    aac::{AacConfig, AdtsReader, SAMPLES_PER_FRAME},
    boxes::{self, InitConfig, Sample, SampleRun},
    parameters::{VideoParameters, is_in_sample_entry},
};
use crate::{
    Codec, Frame, FrameClass, FrameTimeline, PACKET,
    dts_timeline::{CLOCK, duration, ticks, wrapping_difference},
    nal::{NalRole, Syntax, nal_units},
    packet::{NULL_PID, Packet},
    pes::{self, PesHeader},
    rendition::{PictureUse, RenditionSelector},
    tables::{MAX_PROGRAMS, Programs},
};
use bytes::Bytes;
use std::{collections::BTreeSet, time::Duration};
use thiserror::Error;

/// The maximum duration of a picture, ticks.
const MAX_PICTURE: i64 = 10 * CLOCK;

/// The duration of a picture if it is the only one, ticks.
const DEFAULT_DURATION: u32 = CLOCK as u32 / 25;

/// A key frame this much before the target also ends the segment, ticks.
const EARLY: u64 = CLOCK as u64 / 10;

/// A segment without a key frame ends this long after its longest duration, in whole seconds: a playlist compares
/// rounded durations, and a key frame may be a little late. Ticks.
const LATE: u64 = CLOCK as u64 * 2 / 5;

/// The longest duration of a first segment. That of later ones is the first one's, because a playlist's target duration
/// must not change (RFC 8216, 6.2.1).
const MAX_FIRST_SEGMENT: Duration = Duration::from_secs(6);

/// The memory of a sample in addition to its bytes.
const SAMPLE_OVERHEAD: usize = 64;

/// The largest gap of audio that is closed is this fraction of a second.
const GAP_DIVISOR: u64 = 10;

/// The bounds of segments.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The minimum duration of a segment, which ends at the next key frame, or without one at the duration of the first
    /// segment.
    pub target: Duration,
    /// The maximum size of a segment, bytes. A larger one ends before its key frame.
    pub max_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { target: Duration::from_secs(2), max_bytes: 32 << 20 }
    }
}

/// An init segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Init {
    /// Counted from 0.
    pub number: u64,
    /// Its codecs (RFC 6381), separated by commas.
    pub codecs: String,
    /// The boxes.
    pub bytes: Bytes,
}

/// A media segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Counted from 0.
    pub number: u64,
    /// The number of its init segment.
    pub init: u64,
    /// The decoding time of its first picture since the stream's first frame.
    pub start: Duration,
    /// The sum of its pictures' durations.
    pub duration: Duration,
    /// Whether its parameters differ from those of the previous segment, or pictures are missing between the two.
    pub is_discontinuous: bool,
    /// The boxes.
    pub bytes: Bytes,
}

/// A segment of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SegmenterOutput {
    /// An init segment, before the segments that need it.
    Init(Init),
    /// The next media segment.
    Segment(Segment),
}

/// Input that cannot be packaged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[non_exhaustive]
pub enum HlsWarning {
    /// Only H.264 and H.265 are written.
    #[error("the video of PID {0} is omitted because it is neither H.264 nor H.265")]
    UnsupportedVideo(u16),
    /// Only AAC is written.
    #[error("the audio of PID {0} is omitted because it is not AAC in ADTS (ffmpeg: -c:a aac)")]
    UnsupportedAudio(u16),
    /// Parameter sets are missing or malformed.
    #[error(
        "the parameter sets of PID {0} are missing or malformed: its video resumes at the next key frame"
    )]
    BadParameters(u16),
    /// A segment reached the maximum size before the next key frame.
    #[error(
        "a segment with more than {0} bytes ended before the next key frame; use shorter groups"
    )]
    TooLarge(usize),
}

/// Turns one rendition of a stream into segments that start at key frames.
#[derive(Debug)]
pub struct Segmenter {
    settings: Settings,
    line: FrameTimeline,
    programs: Programs,
    rendition: RenditionSelector,
    /// The parameters of the newest init segment, and the number of init segments.
    config: Option<InitConfig>,
    inits: u64,
    segments: u64,
    /// The longest duration of a segment in whole seconds, ticks; `None` before the first one.
    longest: Option<u64>,
    /// Whether pictures are missing before the incomplete segment.
    is_after_gap: bool,
    video: PendingVideo,
    audio: PendingAudio,
    bytes: usize,
    warnings: BTreeSet<HlsWarning>,
}

/// The pictures of an incomplete segment.
#[derive(Debug, Default)]
struct PendingVideo {
    pid: Option<u16>,
    parameters: Option<VideoParameters>,
    run: SampleRun,
    /// The decoding time of the newest picture, whose duration is not known yet.
    newest: u64,
    /// The duration of the last complete picture.
    last_duration: Option<u32>,
}

/// The audio of an incomplete segment.
#[derive(Debug, Default)]
struct PendingAudio {
    pid: Option<u16>,
    config: Option<AacConfig>,
    adts: AdtsReader,
    run: SampleRun,
    /// The end of the newest audio frame, samples.
    end: Option<u64>,
}

impl Default for Segmenter {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Segmenter {
    /// Creates a segmenter with these bounds.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            line: FrameTimeline::default(),
            programs: Programs::new(MAX_PROGRAMS),
            rendition: RenditionSelector::default(),
            config: None,
            inits: 0,
            segments: 0,
            longest: None,
            is_after_gap: false,
            video: PendingVideo::default(),
            audio: PendingAudio::default(),
            bytes: 0,
            warnings: BTreeSet::new(),
        }
    }

    /// Starts with these numbers of media segments and init segments.
    pub fn continue_from(&mut self, segments: u64, inits: u64) {
        (self.segments, self.inits) = (segments, inits);
    }

    /// Selects the rendition from its next key frame on.
    pub fn select(&mut self, track: u8) {
        self.rendition.select(track);
    }

    /// Records a lost frame.
    pub fn record_loss(&mut self, track: u8, class: FrameClass) {
        self.rendition.record_loss(track, class);
    }

    /// The time of the newest frame on the timeline of the segments.
    pub fn newest(&self) -> Duration {
        self.line.newest()
    }

    /// Returns the warnings since the last call.
    pub fn take_warnings(&mut self) -> Vec<HlsWarning> {
        std::mem::take(&mut self.warnings).into_iter().collect()
    }

    /// Adds a frame and appends the segments that it completes.
    pub fn push(&mut self, frame: &Frame, into: &mut Vec<SegmenterOutput>) {
        let frame = &self.line.retime(frame);
        match frame.class {
            FrameClass::Tables => self.add_tables(frame),
            FrameClass::Audio => self.add_audio(frame, into),
            _ => {
                let mut pictures = Vec::new();
                self.rendition.push(frame, &mut pictures);
                self.add_pictures(pictures, into);
            }
        }
    }

    /// Ends the stream and appends the last segment.
    pub fn end(&mut self, into: &mut Vec<SegmenterOutput>) {
        let mut pictures = Vec::new();
        self.rendition.end(&mut pictures);
        self.add_pictures(pictures, into);
        let last = self.video.last_duration.unwrap_or(DEFAULT_DURATION);
        self.end_segment(self.video.newest + u64::from(last), into);
    }

    fn add_tables(&mut self, frame: &Frame) {
        for packet in frame.bytes.as_chunks::<PACKET>().0 {
            let packet = Packet(packet);
            if self.programs.is_table(packet.pid()) && self.programs.push(packet).has_changed {
                self.choose_audio();
            }
        }
    }

    /// Selects the audio of the video: the first AAC of its program.
    fn choose_audio(&mut self) {
        let video_program =
            self.video.pid.and_then(|pid| self.programs.find_stream(pid)).map(|found| found.1);
        let Some(pmt) = video_program else { return };
        let mut audio_streams = pmt.streams.iter().filter(|entry| entry.codec().is_audio());
        let first = audio_streams.clone().next().map(|entry| entry.pid);
        self.audio.pid =
            audio_streams.find(|entry| entry.codec() == Codec::Aac).map(|entry| entry.pid);
        if let (None, Some(pid)) = (self.audio.pid, first) {
            self.warnings.insert(HlsWarning::UnsupportedAudio(pid));
        }
    }

    fn add_pictures(&mut self, pictures: Vec<PictureUse>, into: &mut Vec<SegmenterOutput>) {
        for picture in pictures {
            let is_switch = matches!(picture, PictureUse::Switched(_));
            if let PictureUse::Shown(frame) | PictureUse::Switched(frame) = picture {
                let pid = frame_pid(&frame);
                if is_switch || self.video.pid != Some(pid) {
                    self.video.pid = Some(pid);
                    self.choose_audio();
                }
                self.add_picture(&frame, pid, into);
            }
        }
    }

    fn add_picture(&mut self, frame: &Frame, pid: u16, into: &mut Vec<SegmenterOutput>) {
        let syntax = match self.programs.find_stream(pid).map(|found| found.2.codec()) {
            Some(Codec::H264) => Syntax::H264,
            Some(Codec::H265) => Syntax::H265,
            Some(_) => {
                self.warnings.insert(HlsWarning::UnsupportedVideo(pid));
                return;
            }
            // Its program is still unknown.
            None => return self.rendition.record_loss(frame.track, FrameClass::Key),
        };
        let pes = pes::payload(&frame.bytes);
        let Some(head) = PesHeader::read(&pes) else { return };
        let body = pes.get(head.body..).unwrap_or_default();
        let is_key = frame.class == FrameClass::Key;
        let at = ticks(frame.time).max(self.video.next_time());
        self.end_if_late(at, into);
        if is_key && !self.prepare_key_frame(syntax, body, at, pid, into) {
            return self.rendition.record_loss(frame.track, FrameClass::Key);
        }
        let bytes = length_prefixed(syntax, body, is_key);
        if self.bytes + bytes.len() + SAMPLE_OVERHEAD > self.settings.max_bytes
            && !self.video.run.samples.is_empty()
        {
            self.warnings.insert(HlsWarning::TooLarge(self.settings.max_bytes));
            self.end_segment(at, into);
        }
        self.bytes += bytes.len() + SAMPLE_OVERHEAD;
        let shown_after = head
            .pts
            .zip(head.dts)
            .map_or(0, |(pts, dts)| wrapping_difference(pts as i64, dts as i64));
        let shown_after = u32::try_from(shown_after.clamp(0, MAX_PICTURE)).unwrap_or(0);
        self.video.add(Sample { duration: 0, shown_after, is_key, bytes }, at);
    }

    /// Ends the segment before a key frame if it is long enough or the parameters change. Returns false if they are
    /// malformed.
    fn prepare_key_frame(
        &mut self,
        syntax: Syntax,
        body: &[u8],
        at: u64,
        pid: u16,
        into: &mut Vec<SegmenterOutput>,
    ) -> bool {
        let Ok(parameters) = VideoParameters::read(syntax, body) else {
            self.warnings.insert(HlsWarning::BadParameters(pid));
            return false;
        };
        let is_other = self.video.parameters.as_ref() != Some(&parameters);
        let is_long = at + EARLY >= self.video.run.start + ticks(self.settings.target);
        // If this segment does not start at a key frame, the next one does.
        let is_cut = self.video.run.samples.first().is_some_and(|first| !first.is_key);
        if is_other || is_long || is_cut {
            self.end_segment(at, into);
        }
        self.video.parameters = Some(parameters);
        true
    }

    /// The time at which the incomplete segment ends if there is no key frame, ticks.
    fn latest_end(&self) -> u64 {
        let longest = self.longest.unwrap_or_else(|| ticks(MAX_FIRST_SEGMENT));
        self.video.run.start + longest + LATE
    }

    /// Ends the segment if the next picture, at this time, is too late for it.
    fn end_if_late(&mut self, at: u64, into: &mut Vec<SegmenterOutput>) {
        let end = self.latest_end();
        if at >= end && !self.video.run.samples.is_empty() {
            self.end_segment(at.min(end + LATE / 5), into);
            self.is_after_gap = at - end > LATE;
            if self.is_after_gap {
                self.audio.end = None;
            }
        }
    }

    /// Ends the segment at this time, ticks.
    fn end_segment(&mut self, at: u64, into: &mut Vec<SegmenterOutput>) {
        self.video.end_last(at);
        if self.video.run.samples.is_empty() {
            return;
        }
        let config = InitConfig { video: self.video.parameters.clone(), audio: self.audio.config };
        let video = std::mem::take(&mut self.video.run);
        let audio = std::mem::take(&mut self.audio.run);
        self.bytes = 0;
        let is_other = self.config.as_ref() != Some(&config);
        let is_after_gap = std::mem::take(&mut self.is_after_gap);
        let is_discontinuous = (is_other || is_after_gap) && self.config.is_some();
        if is_other {
            let Some(bytes) = config.init_segment() else { return };
            let init =
                Init { number: self.inits, codecs: config.codec_names(), bytes: bytes.into() };
            into.push(SegmenterOutput::Init(init));
            self.inits += 1;
            self.config = Some(config);
        }
        let Some(bytes) = boxes::media_segment(self.segments as u32 + 1, &video, &audio) else {
            return;
        };
        let length: u64 = video.samples.iter().map(|sample| u64::from(sample.duration)).sum();
        self.longest.get_or_insert(whole_seconds(length.max(ticks(self.settings.target))));
        into.push(SegmenterOutput::Segment(Segment {
            number: self.segments,
            init: self.inits - 1,
            start: duration(video.start as i64),
            duration: duration(length as i64),
            is_discontinuous,
            bytes: bytes.into(),
        }));
        self.segments += 1;
    }

    fn add_audio(&mut self, frame: &Frame, into: &mut Vec<SegmenterOutput>) {
        // Audio before the first picture is omitted.
        if self.audio.pid != Some(frame_pid(frame)) || self.video.run.samples.is_empty() {
            return;
        }
        if ticks(frame.time) >= self.latest_end() {
            // Pictures have been missing for so long that the segment ends before this frame.
            return;
        }
        let pes = pes::payload(&frame.bytes);
        let Some(head) = PesHeader::read(&pes) else { return };
        let frames = self.audio.adts.push(pes.get(head.body..).unwrap_or_default());
        let mut at = Some(frame.time);
        for (config, bytes) in frames {
            if self.audio.config != Some(config) {
                if !self.audio.run.samples.is_empty() {
                    self.end_segment(self.video.next_time(), into);
                }
                self.audio.config = Some(config);
                self.audio.end = None;
            }
            if self.bytes + bytes.len() + SAMPLE_OVERHEAD > self.settings.max_bytes {
                // Only a picture can end the segment.
                continue;
            }
            self.bytes += bytes.len() + SAMPLE_OVERHEAD;
            self.audio.add(config, bytes, at.take());
        }
    }
}

impl PendingVideo {
    /// The earliest decoding time of the next picture, ticks.
    fn next_time(&self) -> u64 {
        if self.run.samples.is_empty() { self.newest } else { self.newest + 1 }
    }

    fn add(&mut self, sample: Sample, at: u64) {
        self.end_last(at);
        if self.run.samples.is_empty() {
            self.run.start = at;
        }
        self.run.samples.push(sample);
        self.newest = at;
    }

    /// Ends the newest picture at this time.
    fn end_last(&mut self, at: u64) {
        let Some(last) = self.run.samples.last_mut().filter(|last| last.duration == 0) else {
            return;
        };
        let length = at.saturating_sub(self.newest).clamp(1, MAX_PICTURE as u64);
        last.duration = length as u32;
        self.last_duration = Some(last.duration);
    }
}

impl PendingAudio {
    /// Adds a frame of audio; `at` is its time if known.
    fn add(&mut self, config: AacConfig, bytes: Vec<u8>, at: Option<Duration>) {
        let rate = u64::from(config.rate());
        let read = at.map(|at| (at.as_micros() * u128::from(rate) / 1_000_000) as u64);
        let Some(end) = self.end.or(read) else { return };
        let mut start = end;
        if let Some(read) = read.filter(|read| read.abs_diff(end) > rate / GAP_DIVISOR) {
            if read < end {
                // This time is already covered.
                return;
            }
            start = read;
            let gap = u32::try_from(read - end).unwrap_or(0);
            if let Some(last) = self.run.samples.last_mut() {
                last.duration = last.duration.saturating_add(gap);
            }
        }
        if self.run.samples.is_empty() {
            self.run.start = start;
        }
        self.run.samples.push(Sample {
            duration: SAMPLES_PER_FRAME,
            shown_after: 0,
            is_key: true,
            bytes,
        });
        self.end = Some(start + u64::from(SAMPLES_PER_FRAME));
    }
}

/// Prefixes NAL units with their lengths (ISO/IEC 14496-15). Omits delimiters and the parameter sets of key frames.
fn length_prefixed(syntax: Syntax, body: &[u8], is_key: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 16);
    for nal in nal_units(body) {
        let is_omitted = syntax.role(nal) == NalRole::Delimiter
            || nal.is_empty()
            || is_key && is_in_sample_entry(syntax, nal);
        if !is_omitted {
            bytes.extend((nal.len() as u32).to_be_bytes());
            bytes.extend_from_slice(nal);
        }
    }
    bytes
}

/// Rounds to the nearest second as playlists do, but at least one; ticks.
fn whole_seconds(ticks: u64) -> u64 {
    let clock = CLOCK as u64;
    ((ticks + clock / 2) / clock).max(1) * clock
}

fn frame_pid(frame: &Frame) -> u16 {
    frame.bytes.first_chunk().map_or(NULL_PID, |packet| Packet(packet).pid())
}
