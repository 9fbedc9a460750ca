//! The media playlist of a live stream (RFC 8216).

use super::Segment;
use std::{collections::VecDeque, fmt::Write as _, time::Duration};

/// A segment of the playlist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    number: u64,
    init: u64,
    duration: Duration,
    is_discontinuous: bool,
}

/// Segments that players no longer need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpiredSegments {
    /// Media segments, by number.
    pub segments: Vec<u64>,
    /// Init segments, by number.
    pub inits: Vec<u64>,
}

/// The playlist of the newest segments. Segments are named `segment-N.m4s`, init segments `init-N.mp4`.
#[derive(Clone, Debug)]
pub struct Playlist {
    window: usize,
    /// The minimum target duration, s.
    min_target: u64,
    /// The target duration, s: fixed by the first segment, because it must not change (6.2.1).
    target: Option<u64>,
    entries: VecDeque<Entry>,
    /// Segments that have left the playlist and may still be requested.
    old: VecDeque<Entry>,
    discontinuities: u64,
    is_ended: bool,
}

impl Playlist {
    /// Creates a playlist of the newest `window` segments (at least three) of about `target` each.
    pub fn new(window: usize, target: Duration) -> Self {
        Self {
            window: window.max(3),
            min_target: rounded(target).max(1),
            target: None,
            entries: VecDeque::new(),
            old: VecDeque::new(),
            discontinuities: 0,
            is_ended: false,
        }
    }

    /// Continues an earlier playlist with this number of discontinuities, including the one before the first segment.
    pub fn continue_from(&mut self, discontinuities: u64) {
        self.discontinuities = discontinuities;
    }

    /// Adds a segment. Returns those that left the playlist one window ago and can be deleted (6.2.2).
    pub fn push(&mut self, segment: &Segment) -> ExpiredSegments {
        self.target.get_or_insert(self.min_target.max(rounded(segment.duration)));
        self.entries.push_back(Entry {
            number: segment.number,
            init: segment.init,
            duration: segment.duration,
            is_discontinuous: segment.is_discontinuous,
        });
        while self.entries.len() > self.window
            && let Some(oldest) = self.entries.pop_front()
        {
            // The first segment of a playlist has no discontinuity mark, only the count of earlier ones.
            self.discontinuities += u64::from(oldest.is_discontinuous);
            self.old.push_back(oldest);
        }
        let mut removed = ExpiredSegments::default();
        while self.old.len() > self.window
            && let Some(expired) = self.old.pop_front()
        {
            removed.segments.push(expired.number);
            let next = self.old.front().or(self.entries.front());
            if next.is_some_and(|next| next.init != expired.init) {
                removed.inits.push(expired.init);
            }
        }
        removed
    }

    /// Marks the last segment as the end of the stream.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// The text; `None` before the first segment.
    pub fn text(&self) -> Option<String> {
        let first = self.entries.front()?;
        let mut text = format!(
            "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:{}\n#EXT-X-MEDIA-SEQUENCE:{}\n",
            self.target.unwrap_or(self.min_target),
            first.number
        );
        if self.discontinuities > 0 {
            _ = writeln!(text, "#EXT-X-DISCONTINUITY-SEQUENCE:{}", self.discontinuities);
        }
        let mut init = None;
        for entry in &self.entries {
            if entry.is_discontinuous {
                text += "#EXT-X-DISCONTINUITY\n";
            }
            if init != Some(entry.init) {
                init = Some(entry.init);
                _ = writeln!(text, "#EXT-X-MAP:URI=\"init-{}.mp4\"", entry.init);
            }
            let seconds = entry.duration.as_secs_f64();
            _ = writeln!(text, "#EXTINF:{seconds:.5},\nsegment-{}.m4s", entry.number);
        }
        if self.is_ended {
            text += "#EXT-X-ENDLIST\n";
        }
        Some(text)
    }
}

/// To the nearest second, as target durations are compared (4.3.3.1).
fn rounded(duration: Duration) -> u64 {
    (duration + Duration::from_millis(500)).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u64, init: u64, millis: u64) -> Segment {
        Segment {
            number,
            init,
            start: Duration::ZERO,
            duration: Duration::from_millis(millis),
            is_discontinuous: init > 0 && number == 4,
            bytes: Vec::new().into(),
        }
    }

    #[test]
    fn old_segments_leave_the_window() {
        let mut playlist = Playlist::new(3, Duration::from_secs(2));
        assert_eq!(playlist.text(), None);
        let mut removed = ExpiredSegments::default();
        for number in 0..12 {
            let expired = playlist.push(&segment(number, u64::from(number >= 4), 2000));
            removed.segments.extend(expired.segments);
            removed.inits.extend(expired.inits);
            let text = playlist.text().expect("it has segments");
            let parsed = m3u8_rs::parse_media_playlist_res(text.as_bytes()).expect("right");
            assert_eq!(parsed.segments.len() as u64, (number + 1).min(3));
            assert_eq!(parsed.media_sequence, (number + 1).saturating_sub(3));
            assert_eq!(parsed.discontinuity_sequence, u64::from(number > 6));
            let marks = parsed.segments.iter().filter(|one| one.discontinuity).count();
            assert_eq!(marks, usize::from((4..=6).contains(&number)), "{number}");
            assert!(parsed.segments[0].map.is_some() && !parsed.end_list);
        }
        assert_eq!(removed.segments, [0, 1, 2, 3, 4, 5]);
        assert_eq!(removed.inits, [0]);
        playlist.end();
        assert!(playlist.text().is_some_and(|text| text.ends_with("#EXT-X-ENDLIST\n")));
    }

    #[test]
    fn the_target_duration_is_fixed_by_the_first_segment() {
        let mut playlist = Playlist::new(3, Duration::from_secs(2));
        playlist.push(&segment(0, 0, 4499));
        playlist.push(&segment(1, 0, 1000));
        playlist.push(&segment(2, 0, 6000));
        let text = playlist.text().expect("it has segments");
        assert!(text.contains("#EXT-X-TARGETDURATION:4\n") && text.contains("#EXTINF:4.49900,\n"));
    }
}
