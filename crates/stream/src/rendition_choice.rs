//! Which rendition of a ladder a program plays: the one that its node's parent sends, else the best. Pure.

use std::time::Duration;
use thalweg_media::{Frame, FrameClass, FrameTimeline, MAX_TRACKS};
use thalweg_plan::streams::{HoldDown, Rules};
use thalweg_units::Time;

/// A rendition without frames for this long is not sent any more.
const SILENCE: Duration = Duration::from_secs(1);

/// The first key frames of aligned renditions arrive within this time.
const START: Duration = Duration::from_millis(300);

/// The period over which rates are compared: at least a group of pictures.
const RATE_WINDOW: Duration = Duration::from_secs(4);

/// A rendition is better than the present one if its rate is higher by this factor.
const BETTER: f64 = 1.15;

/// The received frames of a rendition.
#[derive(Clone, Copy, Debug, Default)]
struct Rendition {
    newest: Option<Duration>,
    /// The bytes since `since`, and of the window before.
    bytes: u64,
    last_bytes: u64,
    since: Duration,
}

impl Rendition {
    fn add(&mut self, frame: &Frame) {
        self.newest = self.newest.max(Some(frame.time));
        if frame.time.saturating_sub(self.since) >= RATE_WINDOW {
            (self.last_bytes, self.bytes, self.since) = (self.bytes, 0, frame.time);
        }
        self.bytes += frame.bytes.len() as u64;
    }

    /// Bytes in about a window; renditions that began together are comparable.
    fn rate(&self) -> f64 {
        self.bytes.max(self.last_bytes) as f64
    }

    fn is_silent(&self, now: Duration) -> bool {
        self.newest.is_none_or(|newest| now.saturating_sub(newest) > SILENCE)
    }
}

fn stream_time(frame: &Frame) -> Time {
    Time::ZERO + frame.time
}

/// Chooses the rendition to play from the frames that arrive.
#[derive(Clone, Debug, Default)]
pub struct RenditionChoice {
    /// The times of all pictures.
    line: FrameTimeline,
    renditions: [Rendition; MAX_TRACKS],
    current: Option<u8>,
    /// The time of the first frame.
    began: Option<Duration>,
    /// Limits switches on a congested leg with all renditions, where each of them stops and resumes.
    hold: HoldDown,
}

impl RenditionChoice {
    /// The chosen rendition; `None` before the first key frame.
    pub fn current(&self) -> Option<u8> {
        self.current
    }

    /// Adds the next frame. Returns the rendition to switch to, from this frame on.
    pub fn add(&mut self, frame: &Frame) -> Option<u8> {
        if !frame.class.is_video() {
            return None;
        }
        let frame = &self.line.retime(frame);
        let track = usize::from(frame.track);
        let began = *self.began.get_or_insert(frame.time);
        // Without this frame, so that aligned renditions have as many key frames.
        let own = *self.renditions.get(track)?;
        self.renditions[track].add(frame);
        if frame.class != FrameClass::Key || self.current == Some(frame.track) {
            return None;
        }
        let is_chosen = match self.current {
            None => true,
            Some(current) => {
                let other = &self.renditions[usize::from(current)];
                // At first, frames of all renditions are on their way. Later, the parent has switched to this one.
                let is_start = frame.time.saturating_sub(began) <= START;
                let is_resumed = own.is_silent(frame.time) && !is_start;
                // The parent itself may switch down and up, which shows at once.
                let is_held = self.hold.has_failed()
                    && self.hold.is_held(stream_time(frame), &Rules::default());
                let is_better = is_resumed || own.rate() > other.rate() * BETTER;
                other.is_silent(frame.time) || is_better && !is_held
            }
        };
        is_chosen.then(|| {
            self.record_switch(frame);
            frame.track
        })
    }

    fn record_switch(&mut self, frame: &Frame) {
        if let Some(old) = self.current.replace(frame.track) {
            let rate = |track: u8| self.renditions[usize::from(track)].rate();
            match rate(frame.track) > rate(old) {
                true => self.hold.raised(stream_time(frame)),
                false => self.hold.lowered(stream_time(frame), &Rules::default()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of renditions with these sizes for so many seconds, with a key frame each second of ten.
    fn choose(
        choice: &mut RenditionChoice,
        seconds: std::ops::Range<u64>,
        sizes: &[(u8, usize)],
    ) -> Vec<(u64, u8)> {
        let mut chosen = Vec::new();
        for n in seconds.start * 10..seconds.end * 10 {
            for (track, size) in sizes {
                let class = if n % 10 == 0 { FrameClass::Key } else { FrameClass::Reference };
                let time = Duration::from_millis(n * 100);
                let frame = Frame { track: *track, class, time, bytes: vec![0; *size].into() };
                chosen.extend(choice.add(&frame).map(|track| (n, track)));
            }
        }
        chosen
    }

    #[test]
    fn the_best_rendition_that_arrives_is_chosen() {
        let mut choice = RenditionChoice::default();
        assert_eq!(choose(&mut choice, 0..20, &[(1, 1000), (0, 3000)]), [(0, 1), (10, 0)]);
        assert_eq!(choose(&mut choice, 20..25, &[(1, 1000)]), [(210, 1)], "silent for a second");
    }

    #[test]
    fn a_rendition_that_the_parent_begins_to_send_is_chosen_at_once() {
        let mut choice = RenditionChoice::default();
        assert_eq!(choose(&mut choice, 50..60, &[(0, 3000)]), [(500, 0)]);
        assert_eq!(choose(&mut choice, 60..70, &[(1, 1000)]), [(600, 1)]);
        assert_eq!(choose(&mut choice, 70..80, &[(0, 3000)]), [(700, 0)]);
        assert_eq!(choice.current(), Some(0));
    }

    #[test]
    fn a_rendition_that_comes_and_goes_is_rarely_chosen() {
        let mut choice = RenditionChoice::default();
        let mut switches = choose(&mut choice, 0..4, &[(0, 3000), (1, 1000)]).len();
        for round in 0..100 {
            let began = 4 + round * 6;
            switches += choose(&mut choice, began..began + 3, &[(1, 1000)]).len();
            switches += choose(&mut choice, began + 3..began + 6, &[(0, 3000), (1, 1000)]).len();
        }
        assert!((3..=24).contains(&switches), "{switches}");
    }

    #[test]
    fn a_frame_of_the_far_future_does_not_hold_its_rendition() {
        let mut choice = RenditionChoice::default();
        assert_eq!(choose(&mut choice, 0..10, &[(0, 3000), (1, 1000)]), [(0, 0)]);
        let time = Duration::from_micros(u64::MAX / 2);
        let bytes = vec![0; 3000].into();
        assert_eq!(choice.add(&Frame { track: 0, class: FrameClass::Key, time, bytes }), None);
        assert_eq!(choose(&mut choice, 10..14, &[(1, 1000)]), [(110, 1)], "silent for a second");
    }

    #[test]
    fn equal_renditions_do_not_alternate() {
        let mut choice = RenditionChoice::default();
        assert_eq!(choose(&mut choice, 0..60, &[(0, 1000), (1, 1050)]), [(0, 0)]);
    }
}
