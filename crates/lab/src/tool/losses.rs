//! Analyses a received blast: losses, their bursts, duplicates and reordering. Pure.

use super::{arrivals::DatagramArrivals, output::MeasuredValue};
use serde::Serialize;
use std::collections::BTreeMap;

/// The sink's report on a blast.
#[derive(Clone, Debug, Serialize)]
pub struct LossReport {
    /// Datagrams that the source sent.
    pub sent: u64,
    /// Different datagrams that arrived.
    pub received: u64,
    /// Datagrams that never arrived, including corrupted ones, because the kernel drops datagrams with a wrong UDP
    /// checksum.
    pub lost: u64,
    /// Copies beyond the first.
    pub duplicated: u64,
    /// First copies that arrived after a datagram with a higher number.
    pub reordered: u64,
    /// Datagrams dropped by this host's socket, because its buffer was full or a checksum was wrong.
    pub host_drops: u32,
    /// lost / sent.
    pub loss: MeasuredValue,
    /// Runs of consecutive losses.
    pub bursts: u64,
    /// lost / bursts.
    pub mean_burst: MeasuredValue,
    /// The number of bursts of each length.
    pub burst_lengths: BTreeMap<u64, u64>,
}

impl LossReport {
    /// Analyses a blast of `sent` datagrams numbered from 0. O(n).
    pub fn new(sent: u64, arrivals: &DatagramArrivals) -> Self {
        let mut seen = vec![false; usize::try_from(sent).unwrap_or(0)];
        let (mut received, mut duplicated, mut reordered, mut highest) = (0, 0, 0, None);
        for arrival in &arrivals.list {
            match seen.get_mut(arrival.seq as usize) {
                None => {}
                Some(true) => duplicated += 1,
                Some(first) => {
                    *first = true;
                    received += 1;
                    reordered += u64::from(highest > Some(arrival.seq));
                    highest = highest.max(Some(arrival.seq));
                }
            }
        }
        let burst_lengths = runs_of_losses(&seen);
        let bursts: u64 = burst_lengths.values().sum();
        let lost = sent - received;
        let ratio = |a: u64, b: u64| (b > 0).then(|| a as f64 / b as f64);
        Self {
            sent,
            received,
            lost,
            duplicated,
            reordered,
            host_drops: arrivals.host_drops,
            loss: MeasuredValue::new("1", ratio(lost, sent)),
            bursts,
            mean_burst: MeasuredValue::new("packets", ratio(lost, bursts)),
            burst_lengths,
        }
    }
}

/// The number of maximal runs of `false` of each length.
fn runs_of_losses(seen: &[bool]) -> BTreeMap<u64, u64> {
    let mut lengths = BTreeMap::new();
    for run in seen.chunk_by(|a, b| a == b).filter(|run| !run[0]) {
        *lengths.entry(run.len() as u64).or_insert(0) += 1;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{
        arrivals::DatagramArrival,
        wire::{DatagramPlan, ReportKind},
    };

    fn report(sent: u64, seqs: &[u32]) -> LossReport {
        let report = ReportKind::Losses;
        let plan =
            DatagramPlan { session: 1, trains: 1, packets: 9, size: 100, report, settle_ns: 0 };
        let mut arrivals = DatagramArrivals::expecting(&plan);
        let arrive =
            |seq: &u32| DatagramArrival { train: 0, seq: *seq, sent_ns: 0, received_ns: 0 };
        arrivals.list = seqs.iter().map(arrive).collect();
        LossReport::new(sent, &arrivals)
    }

    #[test]
    fn losses_count_at_both_ends_and_in_bursts() {
        let r = report(9, &[1, 2, 5, 7]);
        assert_eq!((r.received, r.lost, r.bursts), (4, 5, 4));
        assert_eq!(r.burst_lengths, BTreeMap::from([(1, 3), (2, 1)]));
        assert_eq!(r.mean_burst.value, Some(1.25));
    }

    #[test]
    fn duplicates_and_late_datagrams_are_not_losses() {
        let r = report(4, &[0, 2, 1, 1, 3]);
        assert_eq!((r.lost, r.duplicated, r.reordered), (0, 1, 1));
        assert_eq!((r.bursts, r.mean_burst.value, r.loss.value), (0, None, Some(0.0)));
    }

    #[test]
    fn total_loss_is_one_burst_and_unknown_numbers_are_ignored() {
        assert_eq!(report(5, &[]).burst_lengths, BTreeMap::from([(5, 1)]));
        assert_eq!(report(1, &[0, 8]).received, 1);
    }
}
