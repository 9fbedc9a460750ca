//! Limits the frames a second that a peer may send, because each of them costs work on every leg.

use std::time::Duration;
use thalweg_base::token_bucket::Bucket;
use thalweg_units::Rate;
use tokio::time::{Instant, sleep};

/// The most frames and notices of lost frames a second: eight renditions and eight audio tracks at 256 each.
const MAX_FRAMES: u64 = 4096;

/// The largest burst: a full queue of a parent, after an outage.
const BURST: usize = 8192;

/// Delays the reading of a peer that sends too many frames.
#[derive(Debug)]
pub struct FrameRateLimit(Bucket);

impl FrameRateLimit {
    /// Creates a limit that allows a full burst.
    pub fn new() -> Self {
        // The bucket counts bytes, and here a byte stands for a frame.
        Self(Bucket::new(Rate::from_bps(8 * MAX_FRAMES), BURST, Instant::now().into_std()))
    }

    /// Counts received frames, and waits until more may be received.
    pub async fn admit(&mut self, frames: usize) {
        let wait = self.0.take(frames as u64, Instant::now().into_std());
        if wait > Duration::ZERO {
            sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn frames_beyond_the_burst_take_their_time() {
        let (mut rate, began) = (FrameRateLimit::new(), Instant::now());
        for _ in 0..BURST {
            rate.admit(1).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            rate.admit(MAX_FRAMES as usize).await;
        }
        assert!(began.elapsed() >= Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
