//! The results of one copy.

use super::{
    pathload::Round,
    shots::{ProbeLog, SentProbe},
};
use serde_json::Value;
use thalweg_lab::emu::LinkTruth;

/// A copy's run, in the lab's time.
pub struct CopyRun {
    /// The tool's probes.
    pub log: ProbeLog,
    /// The measurements of Pathload.
    pub rounds: Vec<Round>,
    /// The source's throughput in each second, Mbit/s.
    pub source: Vec<f64>,
    /// The bottleneck's record.
    pub truth: LinkTruth,
    /// The counters of m3's carrier.
    pub counts: Value,
    /// The begin of the run, s.
    pub begin: f64,
    /// The end of the run, s.
    pub until: f64,
}

/// A series of sent probes is thinned out so that it has at least this many points and fewer than twice as many.
const MOST_SHOWN: usize = 1500;

/// A metric: name, unit, value.
pub type MetricValue = (&'static str, &'static str, f64);

/// The bytes of a probe that count.
type CountedBytes = fn(&SentProbe) -> u32;

/// All bytes of a probe.
const ALL: CountedBytes = |shot| shot.bytes;
/// The bytes of probes without riders.
const BARE: CountedBytes = |shot| if shot.carried == 0 { shot.bytes } else { 0 };
/// The bytes of riders.
const RIDING: CountedBytes = |shot| shot.carried;
/// All bytes but the riders': headers and empty padding (the paper's "probe (nopbk)").
const OVERHEAD: CountedBytes = |shot| shot.bytes.saturating_sub(shot.carried);

impl CopyRun {
    fn seconds(&self) -> f64 {
        self.until - self.begin
    }

    /// The rate of arrived bytes, Mbit/s.
    fn rate(&self, part: CountedBytes) -> f64 {
        let arrived = self.log.shots().filter(|shot| shot.arrived.is_some());
        arrived.map(|shot| f64::from(part(&shot))).sum::<f64>() * 8e-6 / self.seconds()
    }

    fn count(&self, is: impl Fn(&SentProbe) -> bool) -> f64 {
        self.log.shots().filter(is).count() as f64
    }

    /// The copy's metrics. The source is short in seconds in which its throughput was below `least`, Mbit/s.
    pub fn figures(&self, least: Option<f64>) -> Vec<MetricValue> {
        let lost = |shot: &SentProbe| shot.arrived.is_none();
        let (sent, carriers) = (self.count(|_| true), self.count(|shot| shot.carried > 0));
        let ridden = self.count(|shot| lost(shot) && shot.carried > 0);
        let bare = self.count(|shot| lost(shot) && shot.carried == 0);
        let mut all = vec![
            ("source", "Mbit/s", mean(&self.source)),
            ("cross", "Mbit/s", mean(&self.cross().iter().map(|[_, v]| *v).collect::<Vec<_>>())),
            ("cross_lost", "%", self.cross_lost()),
            ("probes", "Mbit/s", self.rate(ALL)),
            ("bare", "Mbit/s", self.rate(BARE)),
            ("riding", "Mbit/s", self.rate(RIDING)),
            ("overhead", "Mbit/s", self.rate(OVERHEAD)),
            ("sent", "probes", sent),
            ("carriers", "%", 100.0 * carriers / sent),
            ("lost_bare", "probes", bare),
            ("lost_ridden", "probes", ridden),
            ("lost", "%", 100.0 * (bare + ridden) / sent),
            ("doubted", "%", 100.0 * f64::from(self.log.doubted) / self.log.trains() as f64),
            ("refused", "trains", f64::from(self.log.refused)),
        ];
        if let Some(least) = least {
            let short = self.source.iter().filter(|rate| **rate < least).count();
            all.push(("short", "%", 100.0 * short as f64 / self.source.len() as f64));
        }
        let rides = |name: &str| self.counts[name].as_f64().unwrap_or(0.0);
        all.push(("timed_out", "packets", rides("timed_out_packets")));
        all.push(("dropped", "packets", rides("dropped_packets")));
        all
    }

    /// The share of STEP's packets that found the queue full, %.
    fn cross_lost(&self) -> f64 {
        let (drops, passed) = (self.truth.cross_drops as f64, self.truth.cross_packets as f64);
        100.0 * drops / (drops + passed)
    }

    /// The rate of cross traffic at the bottleneck in each second, Mbit/s.
    pub fn cross(&self) -> Vec<[f64; 2]> {
        let is = |name: &&String| ["cross", "web"].contains(&name.as_str());
        let classes = self.truth.classes.iter().enumerate();
        let of: Vec<usize> = classes.filter(|(_, name)| is(name)).map(|(at, _)| at).collect();
        let width = self.truth.bin_s;
        let taken = |second: usize| {
            let from = ((self.begin + second as f64) / width).round() as usize;
            let to = ((self.begin + second as f64 + 1.0) / width).round() as usize;
            let bins = self.truth.bins.iter().take(to).skip(from);
            let bytes = bins.flat_map(|bin| of.iter().filter_map(|at| bin.bytes.get(*at)));
            bytes.sum::<u64>() as f64 * 8e-6
        };
        (0..self.seconds() as usize).map(|second| [second as f64, taken(second)]).collect()
    }

    /// The rate of probes without their riders in each second, Mbit/s.
    pub fn overhead(&self) -> Vec<[f64; 2]> {
        let mut seconds = vec![0.0; self.seconds() as usize];
        for shot in self.log.shots() {
            let second = shot.arrived.map(|at| (at - self.begin).max(0.0) as usize);
            if let Some(slot) = second.and_then(|second| seconds.get_mut(second)) {
                *slot += f64::from(OVERHEAD(&shot)) * 8e-6;
            }
        }
        seconds.into_iter().enumerate().map(|(at, rate)| [at as f64, rate]).collect()
    }

    /// Sent probes as points for a picture (Fig. 14): the time, and the place in the train; thinned out.
    pub fn sent(&self) -> Vec<[f64; 2]> {
        let each = (self.log.shots().count() / MOST_SHOWN).max(1);
        let some = self.log.shots().step_by(each);
        some.map(|shot| [shot.at - self.begin, shot.place as f64]).collect()
    }

    /// Lost probes with or without riders (Fig. 14): the time, and the place in the train.
    pub fn lost(&self, with_riders: bool) -> Vec<[f64; 2]> {
        let is = |shot: &SentProbe| shot.arrived.is_none() && (shot.carried > 0) == with_riders;
        let lost = self.log.shots().filter(is);
        lost.map(|shot| [shot.at - self.begin, shot.place as f64]).collect()
    }
}

/// The mean; NaN if there are no values.
pub fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_lab::emu::Bin;

    fn copy() -> CopyRun {
        let bin = |cross| Bin { bytes: vec![5, 7, cross, 0], ..Bin::default() };
        let truth = LinkTruth {
            bin_s: 0.5,
            classes: ["node", "web", "other", "cross"].map(str::to_owned).to_vec(),
            bins: vec![bin(0), bin(0), bin(1), bin(2), bin(3)],
            cross_packets: 9,
            cross_drops: 1,
            ..LinkTruth::default()
        };
        CopyRun {
            log: ProbeLog::default(),
            rounds: Vec::new(),
            source: vec![4.0, 4.0, 3.0, 4.0],
            truth,
            counts: Value::Null,
            begin: 1.0,
            until: 2.0,
        }
    }

    #[test]
    fn figures_only_cover_the_run() {
        let figures = copy().figures(Some(3.8));
        let of = |name| figures.iter().find(|figure| figure.0 == name).unwrap().2;
        assert!((of("short") - 25.0).abs() < 1e-9 && (of("source") - 3.75).abs() < 1e-9);
        assert!((of("cross_lost") - 10.0).abs() < 1e-9);
        // WEB has seven bytes in each of the run's two bins.
        assert!((of("cross") - 14.0 * 8e-6).abs() < 1e-12);
        assert!(of("lost").is_nan(), "nothing was sent");
    }
}
