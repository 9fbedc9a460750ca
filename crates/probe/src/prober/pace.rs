//! Holds a flow to the rate that the operator has set.

use std::time::Duration;
use thalweg_units::Rate;
use tokio::time::{Instant, sleep_until};

/// The duration of a piece at the given rate, i.e. how far ahead of it bytes may be moved at once.
const PIECE: Duration = Duration::from_millis(20);

/// The pace of one flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    rate: Option<Rate>,
    began: Instant,
}

impl Pace {
    /// Starts a flow now, at this rate, or as fast as possible.
    pub fn new(rate: Option<Rate>) -> Self {
        Self { rate, began: Instant::now() }
    }

    /// How many bytes to move at once, at most `most`.
    pub fn piece(&self, most: usize) -> usize {
        let piece = |rate: Rate| rate.bytes_in(PIECE).as_bytes() as usize;
        self.rate.map_or(most, |rate| piece(rate).clamp(1448.min(most), most))
    }

    /// Waits until `moved` bytes in total are not ahead of the rate. Cancel-safe.
    pub async fn wait(&self, moved: u64) {
        let Some(bps) = self.rate.map(Rate::as_bps).filter(|bps| *bps > 0) else { return };
        let due = Duration::from_secs_f64(moved as f64 * 8.0 / bps as f64);
        sleep_until(self.began + due).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn bytes_are_held_to_the_rate() {
        let pace = Pace::new(Some(Rate::from_mbps(8.0)));
        let began = Instant::now();
        pace.wait(1_000_000).await;
        assert_eq!(began.elapsed().as_secs_f64().round(), 1.0);
        assert_eq!(pace.piece(1 << 20), 20_000);
        let free = Pace::new(None);
        free.wait(u64::MAX).await;
        assert_eq!(free.piece(4096), 4096);
    }
}
