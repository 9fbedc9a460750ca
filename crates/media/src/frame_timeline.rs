//! Maps the times of arriving frames to a timeline without large jumps. Pure.
//!
//! A publisher may send arbitrary times or restart its stream. A single wrong time must not remain the newest time
//! forever.

use crate::Frame;
use std::time::Duration;

/// A time this far behind the newest one starts a new input timeline. Streams of one clock are closer together.
pub(crate) const BACK: Duration = Duration::from_secs(10);

/// A time this far ahead of the newest one starts a new input timeline. A shorter step is a gap in the stream.
const AHEAD: Duration = Duration::from_secs(600);

/// The mapped time between the frames before and after such a start.
const STEP: Duration = Duration::from_millis(40);

/// A first frame with a later time is mapped to zero: a century.
const LATEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// Maps the times of a stream's frames, so that they continue when the input starts a new timeline.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameTimeline {
    /// The newest time of the current input timeline, and its mapped time.
    newest: Option<(Duration, Duration)>,
}

impl FrameTimeline {
    /// Returns the next frame with its mapped time.
    pub fn retime(&mut self, frame: &Frame) -> Frame {
        Frame { time: self.map_time(frame.time), ..frame.clone() }
    }

    /// The newest mapped time.
    pub fn newest(&self) -> Duration {
        self.newest.map_or(Duration::ZERO, |(_, mapped)| mapped)
    }

    fn map_time(&mut self, time: Duration) -> Duration {
        let Some((newest, mapped)) = self.newest else {
            let mapped = if time > LATEST { Duration::ZERO } else { time };
            self.newest = Some((time, mapped));
            return mapped;
        };
        let (behind, ahead) = (newest.saturating_sub(time), time.saturating_sub(newest));
        if !behind.is_zero() && behind <= BACK {
            return mapped.saturating_sub(behind);
        }
        let step = if behind > BACK || ahead > AHEAD { STEP } else { ahead };
        let mapped = mapped.saturating_add(step);
        self.newest = Some((time, mapped));
        mapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped_times(millis: &[u64]) -> Vec<u128> {
        let mut line = FrameTimeline::default();
        millis.iter().map(|at| line.map_time(Duration::from_millis(*at)).as_millis()).collect()
    }

    #[test]
    fn near_times_and_gaps_are_kept() {
        let times = [70_000, 70_040, 70_010, 61_000, 130_000, 130_040];
        assert_eq!(mapped_times(&times), times.map(u128::from));
    }

    #[test]
    fn a_jump_starts_a_new_timeline_and_time_continues() {
        let far = u64::MAX / 2000;
        assert_eq!(mapped_times(&[0, 40, far, 80, 120, 90]), [0, 40, 80, 120, 160, 130]);
        assert_eq!(mapped_times(&[far, far + 40, 0, 40]), [0, 40, 80, 120]);
        assert_eq!(mapped_times(&[0, 300_000, 40, 80]), [0, 300_000, 300_040, 300_080]);
        assert_eq!(mapped_times(&[50_000, 0, 40]), [50_000, 50_040, 50_080]);
    }
}
