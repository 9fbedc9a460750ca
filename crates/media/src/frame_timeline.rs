//! The times of frames as they arrive, on a line without far jumps. Pure.
//!
//! A publisher may send any times, also those of a stream that begins anew. One wrong time must not count for good as
//! the newest one.

use crate::Frame;
use std::time::Duration;

/// A time this far behind the newest one begins a new time line. Streams of one clock are closer together.
pub(crate) const BACK: Duration = Duration::from_secs(10);

/// A time this far ahead of the newest one begins a new time line. A shorter step is a gap in the stream.
const AHEAD: Duration = Duration::from_secs(600);

/// The time between the frames before and after the beginning of a new time line.
const STEP: Duration = Duration::from_millis(40);

/// The latest time of a first frame that is taken as it is: a century.
const LATEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Places the times of a stream's frames, so that they go on where a new time line begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameTimeline {
    /// The newest time of the present time line, and its place.
    newest: Option<(Duration, Duration)>,
}

impl FrameTimeline {
    /// The next frame with its place on the line.
    pub fn retime(&mut self, frame: &Frame) -> Frame {
        Frame { time: self.map_time(frame.time), ..frame.clone() }
    }

    /// The newest place.
    pub fn newest(&self) -> Duration {
        self.newest.map_or(Duration::ZERO, |(_, place)| place)
    }

    fn map_time(&mut self, time: Duration) -> Duration {
        let Some((newest, place)) = self.newest else {
            let place = if time > LATEST { Duration::ZERO } else { time };
            self.newest = Some((time, place));
            return place;
        };
        let (behind, ahead) = (newest.saturating_sub(time), time.saturating_sub(newest));
        if !behind.is_zero() && behind <= BACK {
            return place.saturating_sub(behind);
        }
        let step = if behind > BACK || ahead > AHEAD { STEP } else { ahead };
        let place = place.saturating_add(step);
        self.newest = Some((time, place));
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(millis: &[u64]) -> Vec<u128> {
        let mut line = FrameTimeline::default();
        millis.iter().map(|at| line.map_time(Duration::from_millis(*at)).as_millis()).collect()
    }

    #[test]
    fn near_times_and_gaps_are_kept() {
        let times = [70_000, 70_040, 70_010, 61_000, 130_000, 130_040];
        assert_eq!(places(&times), times.map(u128::from));
    }

    #[test]
    fn a_jump_begins_a_new_time_line_and_time_goes_on() {
        let far = u64::MAX / 2000;
        assert_eq!(places(&[0, 40, far, 80, 120, 90]), [0, 40, 80, 120, 160, 130]);
        assert_eq!(places(&[far, far + 40, 0, 40]), [0, 40, 80, 120]);
        assert_eq!(places(&[0, 300_000, 40, 80]), [0, 300_000, 300_040, 300_080]);
        assert_eq!(places(&[50_000, 0, 40]), [50_000, 50_040, 50_080]);
    }
}
