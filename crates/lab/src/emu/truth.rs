//! The ground truth about a link, with which experiments compare their measurements.

use serde::{Deserialize, Serialize};
use thalweg_units::Rate;

/// Drops less than this apart belong to one loss episode. It is well above the time of a packet on slow links, and well
/// below the seconds between congestion events of long TCP flows.
pub(super) const EPISODE_GAP_NS: u64 = 100_000_000;
/// Episodes kept per link (1.5 MB of text at most); further ones are counted only.
pub(super) const EPISODES_MAX: usize = 10_000;

/// The record of one direction of a link since its start.
///
/// Cross traffic is counted separately, except in `episodes` and the size of the queue, which it shares. A packet is in
/// at most one of `queue_drops`, `random_losses` and `down_drops`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkTruth {
    /// The link's name with the direction: `core.fwd`.
    pub name: String,
    /// The time from the start that the record covers, seconds.
    pub until_s: f64,
    /// The rate at the end; `None`: no limit.
    pub rate: Option<Rate>,
    /// Whether the link was up at the end.
    pub up: bool,
    /// Packets that left the queue, including packets lost afterwards.
    pub packets: u64,
    /// Bytes of the packets that left the queue.
    pub bytes: u64,
    /// Packets of cross traffic that left the queue.
    pub cross_packets: u64,
    /// Bytes of cross traffic that left the queue.
    pub cross_bytes: u64,
    /// Packets that found the queue full.
    pub queue_drops: u64,
    /// Packets of cross traffic that found the queue full.
    pub cross_drops: u64,
    /// Packets lost at random after the queue.
    pub random_losses: u64,
    /// Packets that found the link down, or were in flight when it went down.
    pub down_drops: u64,
    /// Packets held back for reordering.
    pub reordered: u64,
    /// Packets duplicated.
    pub duplicated: u64,
    /// Packets with a flipped bit.
    pub corrupted: u64,
    /// Bytes in the queue at the end.
    pub queue_bytes: u64,
    /// The most bytes in the queue, including the entering packet.
    pub queue_max_bytes: u64,
    /// The size of the queue; `None`: no limit.
    pub queue_limit_bytes: Option<u64>,
    /// Loss episodes, in order. Drops of any kind less than 100 ms apart belong to one episode.
    pub episodes: Vec<LossEpisode>,
    /// Episodes beyond the first 10,000, which are not listed.
    pub episodes_unlisted: u64,
    /// Names of the classes, in the order of [`Bin::bytes`].
    pub classes: Vec<String>,
    /// Width of a bin, seconds; it doubles whenever there would be more than 4096 bins.
    pub bin_s: f64,
    /// `bins[k]` covers the time from `k · bin_s` to `(k + 1) · bin_s` since the start; the last bin ends at `until_s`.
    /// Empty for a link that no packet ever entered.
    pub bins: Vec<Bin>,
}

/// An interval in which packets were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossEpisode {
    /// The first drop, seconds since the start.
    pub start_s: f64,
    /// The last drop, seconds since the start.
    pub end_s: f64,
    /// Packets dropped, cross traffic included.
    pub drops: u64,
}

/// One bin of a link's history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Bits that the link could have carried; `None`: no limit.
    pub capacity_bits: Option<u64>,
    /// Bytes that left the queue, by class.
    pub bytes: Vec<u64>,
    /// The most bytes in the queue.
    pub queue_max_bytes: u64,
    /// The mean size of the queue over time, bytes.
    pub queue_mean_bytes: f64,
}

impl LinkTruth {
    /// The capacity that cross traffic left free from `from_s` to `to_s`.
    ///
    /// Every bin that overlaps the interval counts as a whole. `None` without such a bin, or if the link had no limit.
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

    /// Packets dropped for any reason, without cross traffic.
    pub fn drops(&self) -> u64 {
        self.queue_drops + self.random_losses + self.down_drops
    }
}
