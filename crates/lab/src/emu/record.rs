//! The record of a link: counters, loss episodes, history.

use super::{
    ClassId, LinkTruth, LossEpisode,
    impair::PacketFate,
    series::{LinkState, Series},
    truth::{EPISODE_GAP_NS, EPISODES_MAX},
};

/// Counters, loss episodes and, if enabled, the history in bins.
#[derive(Clone, Debug)]
pub(super) struct LinkRecord {
    start: u64,
    totals: LinkTruth,
    series: Option<Series>,
    /// The class of cross traffic.
    cross: ClassId,
    /// The current episode: first and last drop, ns, and the number of drops.
    episode: Option<(u64, u64, u64)>,
}

impl LinkRecord {
    pub(super) fn new(start: u64) -> Self {
        let totals = LinkTruth::default();
        Self { start, totals, series: None, cross: ClassId::OTHER, episode: None }
    }

    pub(super) fn keep_series(&mut self, width: u64, classes: usize) {
        self.series = Some(Series::new(self.start, width, classes));
        self.cross = ClassId(u16::try_from(classes - 1).unwrap_or(u16::MAX));
    }

    /// Activates the history at the link's first use, at `now`. Until then the queue was empty and the rate was `rate`.
    #[inline]
    pub(super) fn activate(&mut self, now: u64, rate: Option<u64>) {
        if let Some(series) = self.series.as_mut().filter(|s| !s.is_active()) {
            series.activate();
            series.integrate(now, LinkState { rate, free_at: self.start });
        }
    }

    pub(super) fn integrate(&mut self, now: u64, rate: Option<u64>, free_at: u64) {
        if let Some(series) = &mut self.series {
            series.integrate(now, LinkState { rate, free_at });
        }
    }

    /// Counts a packet that left the queue at `at`. A class of `None` is cross traffic.
    pub(super) fn count_departure(&mut self, at: u64, len: u32, class: Option<ClassId>) {
        let (packets, bytes) = match class {
            Some(_) => (&mut self.totals.packets, &mut self.totals.bytes),
            None => (&mut self.totals.cross_packets, &mut self.totals.cross_bytes),
        };
        *packets += 1;
        *bytes += u64::from(len);
        if let Some(series) = &mut self.series {
            series.count_departure(at, len, class.unwrap_or(self.cross));
        }
    }

    /// Records that a packet entered and the queue now holds `bytes`.
    pub(super) fn record_queue(&mut self, at: u64, bytes: u64) {
        self.totals.queue_max_bytes = self.totals.queue_max_bytes.max(bytes);
        if let Some(series) = &mut self.series {
            series.record_queue(at, bytes);
        }
    }

    pub(super) fn count_queue_drop(&mut self, at: u64, cross: bool) {
        let count = if cross { &mut self.totals.cross_drops } else { &mut self.totals.queue_drops };
        *count += 1;
        self.drop(at, 1);
    }

    pub(super) fn count_down_drops(&mut self, at: u64, n: u64) {
        self.totals.down_drops += n;
        if n > 0 {
            self.drop(at, n);
        }
    }

    pub(super) fn count_impairments(&mut self, at: u64, fate: &PacketFate) {
        self.totals.reordered += u64::from(fate.held.is_some());
        self.totals.duplicated += u64::from(fate.duplicated);
        self.totals.corrupted += u64::from(fate.corrupt.is_some());
        if fate.lost {
            self.totals.random_losses += 1;
            self.drop(at, 1);
        }
    }

    /// The record up to `now`; `series` includes the bins.
    pub(super) fn truth(&self, now: u64, series: bool) -> LinkTruth {
        let mut truth = self.totals.clone();
        truth.until_s = seconds(now.saturating_sub(self.start));
        if let Some(last) = self.episode.map(|e| self.in_seconds(e)) {
            list(&mut truth, last);
        }
        if let Some(it) = &self.series {
            truth.bin_s = seconds(it.width());
            truth.bins = if series { it.bins() } else { Vec::new() };
        }
        truth
    }

    fn drop(&mut self, at: u64, n: u64) {
        match &mut self.episode {
            Some((_, last, drops)) if at.saturating_sub(*last) < EPISODE_GAP_NS => {
                (*last, *drops) = (at, *drops + n);
            }
            other => {
                if let Some(done) = other.replace((at, at, n)) {
                    let done = self.in_seconds(done);
                    list(&mut self.totals, done);
                }
            }
        }
    }

    fn in_seconds(&self, (start, end, drops): (u64, u64, u64)) -> LossEpisode {
        let since = |t: u64| seconds(t.saturating_sub(self.start));
        LossEpisode { start_s: since(start), end_s: since(end), drops }
    }
}

fn list(truth: &mut LinkTruth, episode: LossEpisode) {
    if truth.episodes.len() < EPISODES_MAX {
        truth.episodes.push(episode);
    } else {
        truth.episodes_unlisted += 1;
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
