//! What really happened on a link: the ground truth that experiments compare with.

use serde::{Deserialize, Serialize};
use thalweg_units::Rate;

/// Drops less than this apart belong to one loss episode: well above a
/// packet's time on slow links, well below the seconds between congestion
/// events of long TCP flows.
pub(super) const EPISODE_GAP_NS: u64 = 100_000_000;
/// Episodes kept per link (1.5 MB of text at most); further ones are counted only.
pub(super) const EPISODES_MAX: usize = 10_000;

/// The record of one half of a link since its start.
///
/// Cross traffic is counted apart, except in `episodes` and the queue, which
/// it shares. A packet is in at most one of `queue_drops`, `random_losses`
/// and `down_drops`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkTruth {
    /// Its name with the half: `core.fwd`.
    pub name: String,
    /// Seconds since the start that this covers.
    pub until_s: f64,
    /// The rate at the end; `None`: no limit.
    pub rate: Option<Rate>,
    /// Whether it was up at the end.
    pub up: bool,
    /// Packets that left the queue, lost afterwards or not.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Cross traffic that left the queue, packets.
    pub cross_packets: u64,
    /// The same in bytes.
    pub cross_bytes: u64,
    /// Packets that found the queue full.
    pub queue_drops: u64,
    /// Packets of cross traffic that found the queue full.
    pub cross_drops: u64,
    /// Packets lost at random after the queue.
    pub random_losses: u64,
    /// Packets that found the link down, or were under way when it went down.
    pub down_drops: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Bytes in the queue at the end.
    pub queue_bytes: u64,
    /// The most bytes the queue held, the entering packet included.
    pub queue_max_bytes: u64,
    /// The size of the queue; `None`: no limit.
    pub queue_limit_bytes: Option<u64>,
    /// Times of loss, in order; drops of any kind less than 100 ms apart are one.
    pub episodes: Vec<LossEpisode>,
    /// Episodes past the first 10,000, which are not listed.
    pub episodes_unlisted: u64,
    /// Names of the classes, in the order of [`Bin::bytes`].
    pub classes: Vec<String>,
    /// Width of a bin, seconds; doubles whenever there would be more than 4096.
    pub bin_s: f64,
    /// `bins[k]` covers `k · bin_s` to `(k + 1) · bin_s` since the start, the last
    /// one up to `until_s`. Empty for a link that nothing ever entered.
    pub bins: Vec<Bin>,
}

/// A time in which packets were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossEpisode {
    /// The first drop, seconds since the start.
    pub start_s: f64,
    /// The last drop.
    pub end_s: f64,
    /// Packets dropped, cross traffic included.
    pub drops: u64,
}

/// One bin of a link's history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Bits the link could have carried; `None` where it had no limit.
    pub capacity_bits: Option<u64>,
    /// Bytes that left the queue in it, by class.
    pub bytes: Vec<u64>,
    /// The most bytes in the queue.
    pub queue_max_bytes: u64,
    /// Bytes in the queue, mean over the time.
    pub queue_mean_bytes: f64,
}

impl LinkTruth {
    /// The bits per second that cross traffic left free from `from_s` to `to_s`.
    ///
    /// Whole bins that overlap the interval count. `None` without such a bin,
    /// or where the link had no limit.
    pub fn residual(&self, from_s: f64, to_s: f64) -> Option<Rate> {
        let first = (from_s / self.bin_s).floor().max(0.0) as usize;
        let last = (to_s / self.bin_s).ceil().max(0.0) as usize;
        let bins = self.bins.get(first..last.min(self.bins.len()))?;
        let capacity = bins.iter().map(|b| b.capacity_bits).sum::<Option<u64>>()?;
        let cross: u64 = bins.iter().filter_map(|b| b.bytes.last()).sum();
        let end = (last as f64 * self.bin_s).min(self.until_s);
        let seconds = end - first as f64 * self.bin_s;
        if seconds <= 0.0 {
            return None;
        }
        Some(Rate::from_bps((capacity.saturating_sub(8 * cross) as f64 / seconds).round() as u64))
    }

    /// Packets that were dropped for any reason, without cross traffic.
    pub fn drops(&self) -> u64 {
        self.queue_drops + self.random_losses + self.down_drops
    }
}
