//! Turns a stream's frames into segments and playlists. Pure.

use serde::Serialize;
use std::{collections::BTreeMap, fmt::Write as _, time::Duration};
use thalweg_media::{
    Frame, FrameClass,
    hls::{ExpiredSegments, HlsWarning, Init, Playlist, Segment, Segmenter, SegmenterOutput},
};
use thalweg_wire::stream::leg::{CLASSES, DropReason, LostFrame};

/// The bounds of an HLS output.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The minimum duration of a segment; it ends at the next key frame.
    pub target: Duration,
    /// The number of segments in the playlist. As many older ones are kept for slow players.
    pub window: usize,
    /// The maximum size of a segment, bytes.
    pub max_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { target: Duration::from_secs(1), window: 6, max_bytes: 8 << 20 }
    }
}

/// The numbers with which an output begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StartNumbers {
    /// That of the first media segment.
    pub segment: u64,
    /// That of the first init segment.
    pub init: u64,
    /// The number of discontinuities up to the first segment.
    pub discontinuities: u64,
}

/// The changes of an HLS output since the last call.
#[derive(Clone, Debug, Default)]
pub struct Update {
    /// New init segments.
    pub inits: Vec<Init>,
    /// New media segments.
    pub segments: Vec<Segment>,
    /// Segments that no player needs any more.
    pub removed: ExpiredSegments,
}

impl Update {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.inits.is_empty() && self.segments.is_empty()
    }
}

/// The figures that the player shows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    pub name: String,
    /// The publisher's node.
    pub origin: String,
    /// The selected rendition; `None` until one is selected.
    pub track: Option<u8>,
    /// The bytes of all received frames.
    pub bytes: u64,
    /// The received frames by class, tables first.
    pub frames: [u64; CLASSES],
    /// The lost frames by reason.
    pub lost: BTreeMap<&'static str, u64>,
    /// Frames that the requested level excludes.
    pub omitted: u64,
    /// The age of the newest frame on arrival.
    pub age_ms: u64,
    /// The stream time of the newest frame, as in the segments.
    pub newest_ms: u64,
    /// How long ago the newest frame arrived.
    pub idle_ms: u64,
    /// The codecs of the init segments by number (RFC 6381).
    pub inits: BTreeMap<u64, String>,
    /// Whether the stream has ended.
    pub is_ended: bool,
}

/// Packages one rendition of a stream as HLS.
#[derive(Debug)]
pub struct Packager {
    segmenter: Segmenter,
    playlist: Playlist,
    pieces: Vec<SegmenterOutput>,
    /// The codecs of the newest init segment.
    codecs: String,
    /// The highest rate of a segment, bit/s.
    peak_bps: u64,
    next: Option<u64>,
    status: Status,
}

impl Packager {
    /// Creates a packager without segments; `name` and `origin` are shown by the player.
    pub fn new(settings: Settings, name: &str, origin: &str) -> Self {
        let cut =
            thalweg_media::hls::Settings { target: settings.target, max_bytes: settings.max_bytes };
        Self {
            segmenter: Segmenter::new(cut),
            playlist: Playlist::new(settings.window, settings.target),
            pieces: Vec::new(),
            codecs: String::new(),
            peak_bps: 0,
            next: None,
            status: Status {
                name: name.to_owned(),
                origin: origin.to_owned(),
                ..Status::default()
            },
        }
    }

    /// Continues an earlier output; to be called before the first frame.
    pub fn continue_from(&mut self, start: StartNumbers) {
        self.segmenter.continue_from(start.segment, start.init);
        self.playlist.continue_from(start.discontinuities);
    }

    /// Selects the rendition from its next key frame on.
    pub fn select(&mut self, track: u8) {
        self.segmenter.select(track);
        self.status.track = Some(track);
    }

    /// Adds a frame with its number and its age on arrival.
    pub fn push(&mut self, sequence: u64, age: Duration, frame: &Frame) -> Update {
        self.check_gap(sequence);
        self.status.bytes += frame.bytes.len() as u64;
        if let Some(count) = self.status.frames.get_mut(frame.class as usize) {
            *count += 1;
        }
        self.status.age_ms = millis(age);
        self.segmenter.push(frame, &mut self.pieces);
        self.status.newest_ms = millis(self.segmenter.newest());
        self.update()
    }

    /// Records a lost frame.
    pub fn record_loss(&mut self, lost: LostFrame) {
        self.check_gap(lost.sequence);
        let Some(class) = FrameClass::from_number(lost.class) else { return };
        if lost.why == DropReason::Level {
            // The subscriber has not requested it.
            self.status.omitted += 1;
        } else {
            *self.status.lost.entry(lost.why.word()).or_default() += 1;
        }
        self.segmenter.record_loss(lost.track, class);
    }

    /// Breaks the chains of all tracks if frames are missing without a notice.
    fn check_gap(&mut self, sequence: u64) {
        if self.next.is_some_and(|next| sequence > next) {
            for track in 0..thalweg_media::MAX_TRACKS as u8 {
                self.segmenter.record_loss(track, FrameClass::Key);
            }
        }
        self.next = Some(sequence + 1);
    }

    /// Ends the stream: its last segment is complete.
    pub fn end(&mut self) -> Update {
        self.segmenter.end(&mut self.pieces);
        let update = self.update();
        self.playlist.end();
        self.status.is_ended = true;
        update
    }

    fn update(&mut self) -> Update {
        let mut update = Update::default();
        for piece in self.pieces.drain(..) {
            match piece {
                SegmenterOutput::Init(init) => {
                    self.codecs.clone_from(&init.codecs);
                    self.status.inits.insert(init.number, init.codecs.clone());
                    update.inits.push(init);
                }
                SegmenterOutput::Segment(segment) => {
                    let bits = segment.bytes.len() as f64 * 8.0;
                    let bps = bits / segment.duration.as_secs_f64().max(0.1);
                    self.peak_bps = self.peak_bps.max(bps as u64);
                    let removed = self.playlist.push(&segment);
                    for init in &removed.inits {
                        self.status.inits.remove(init);
                    }
                    update.removed.segments.extend(removed.segments);
                    update.removed.inits.extend(removed.inits);
                    update.segments.push(segment);
                }
            }
        }
        update
    }

    /// The warnings about frames that could not be packaged, since the last call.
    pub fn take_warnings(&mut self) -> Vec<HlsWarning> {
        self.segmenter.take_warnings()
    }

    /// The media playlist; `None` before the first segment.
    pub fn playlist(&self) -> Option<String> {
        self.playlist.text()
    }

    /// The multivariant playlist (RFC 8216, 4.3.4), which names the codecs; `None` before the first segment.
    pub fn master(&self) -> Option<String> {
        self.playlist.text()?;
        let mut text = String::from("#EXTM3U\n#EXT-X-VERSION:7\n");
        let (bps, codecs) = (self.peak_bps.max(1), &self.codecs);
        _ = writeln!(text, "#EXT-X-STREAM-INF:BANDWIDTH={bps},CODECS=\"{codecs}\"\nstream.m3u8");
        Some(text)
    }

    /// The figures that the player shows.
    pub fn status(&self) -> &Status {
        &self.status
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
