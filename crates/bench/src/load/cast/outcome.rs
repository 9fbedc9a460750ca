//! The results of a cast.

use super::{
    super::report::Report,
    fault::{FaultAction, PlannedFault},
    legs::Legs,
    mesh::CastMesh,
    network::LabNetwork,
    record::{CastRecord, ProgressRecord},
    run::CastSetup,
};
use std::collections::BTreeMap;
use thalweg_plan::tree::{
    SeveralParents,
    model::{Formula, Hop},
};
use thalweg_units::{ByteSize, Rate};

/// The data of a packet of 1,500 bytes with TCP timestamps: the size of the model's packets.
const SEGMENT: ByteSize = ByteSize::from_bytes(1448);

/// A receiver has recovered when it has this share of its best possible rate.
const RECOVERED: f64 = 0.9;

/// A receiver's rate before a fault is the mean of this many progress events, of one second each.
const BEFORE: usize = 4;

/// A fault that was caused.
pub struct CausedFault {
    /// The fault, with the parent's name filled in.
    pub fault: PlannedFault,
    /// Whether its action was executed.
    pub is_done: bool,
    /// Time since the first offer, s.
    at: f64,
    /// Bytes that its receiver had.
    held: f64,
    /// The receiver's rate before the fault, bit/s.
    before: f64,
}

impl CausedFault {
    /// Records a fault whose time has come.
    pub fn record(fault: &PlannedFault, record: &CastRecord) -> Self {
        let fault = fault.resolved(record.now.get(&fault.of).map(String::as_str));
        let all = record.held.get(&fault.of).map_or(&[][..], Vec::as_slice);
        let last = all.last().copied().unwrap_or(ProgressRecord { at: 0.0, bytes: 0.0, bps: 0.0 });
        let few = &all[all.len().saturating_sub(BEFORE)..];
        let before = few.iter().map(|held| held.bps).sum::<f64>() / few.len().max(1) as f64;
        Self { fault, is_done: false, at: last.at, held: last.bytes, before }
    }
}

/// All data for the report.
pub struct CastResults<'a> {
    /// The hosts, the tree and the rates.
    pub setup: &'a CastSetup,
    /// The receivers that count.
    pub wanted: &'a [String],
    /// The events of the cast.
    pub record: &'a CastRecord,
    /// The faults that were caused.
    pub struck: &'a [CausedFault],
}

impl CastResults<'_> {
    /// Reports rates, completion and redundant bytes.
    pub fn report(&self, left: Option<Rate>) -> Report {
        let (mut report, length) = (Report::default(), self.record.bytes as f64);
        let tree = self.tree();
        let (mut rates, mut finishes) = (vec![], vec![]);
        let (mut hops, mut directs, mut parents) = (vec![], vec![], vec![]);
        report.add_text("tree", tree.to_string());
        let mut beyond_most = 0.0_f64;
        for host in self.wanted {
            let Some(received) = self.record.received.get(host) else { continue };
            let rate = length * 8e-6 / received.seconds;
            let beyond = (received.came - length).max(received.useless).max(0.0) / length * 100.0;
            beyond_most = beyond_most.max(beyond);
            rates.push(rate);
            finishes.push(received.heard);
            report.add(format!("rate/{host}"), "Mbit/s", rate);
            report.add(format!("finish/{host}"), "s", received.heard);
            report.add(format!("beyond/{host}"), "%", beyond);
            if let Some(bps) = tree.min_hop(host, &self.setup.rates) {
                hops.push(rate * 1e6 / bps);
                report.add(format!("hop/{host}"), "ratio", rate * 1e6 / bps);
                report.add(format!("min_hop/{host}"), "Mbit/s", bps / 1e6);
            }
            if let Some(bps) = tree.parent_rate(host, &self.setup.rates) {
                parents.push(rate * 1e6 / bps);
                report.add(format!("parent/{host}"), "ratio", rate * 1e6 / bps);
            }
            let leg = (self.setup.hosts[0].clone(), host.clone());
            if let Some(bps) = self.setup.rates.get(&leg) {
                directs.push(rate * 1e6 / bps);
                report.add(format!("direct/{host}"), "ratio", rate * 1e6 / bps);
            }
        }
        spread(&mut report, "rate", "Mbit/s", rates);
        spread(&mut report, "finish", "s", finishes);
        spread(&mut report, "hop", "ratio", hops);
        spread(&mut report, "parent", "ratio", parents);
        spread(&mut report, "direct", "ratio", directs);
        report.add("beyond_most", "%", beyond_most);
        report.add("sent_by_source", "objects", self.record.served / length);
        let missed: f64 = self.record.missed.values().sum();
        report.add("missed", "symbols", missed);
        report.add("ring_peak", "B", self.record.ring_peak);
        report.add("parents_left", "parents", self.record.left.len() as f64);
        if let Some((_, seconds)) = &self.record.ended {
            report.add("cast", "s", *seconds);
        }
        if let Some(struck) = self.struck.last() {
            self.add_struck(struck, left, &mut report);
        }
        report
    }

    /// Reports the model's rate for each receiver's path, from the lab's round-trip times and losses, and the ratio of
    /// the measured rate to it.
    pub fn add_model(&self, network: &LabNetwork, report: &mut Report) {
        let tree = self.tree();
        for host in self.wanted {
            let Some(received) = self.record.received.get(host) else { continue };
            let way: Option<Vec<Hop>> =
                tree.path_to_root(host).iter().map(|(from, to)| network.hop(from, to)).collect();
            let Some(way) = way else { continue };
            let rate = self.record.bytes as f64 * 8e-6 / received.seconds;
            for (name, mbps) in [("eq2", chain(&way)), ("eq3", aggregate(&way))] {
                report.add(format!("{name}/{host}"), "Mbit/s", mbps);
                report.add(format!("over_{name}/{host}"), "ratio", rate / mbps);
            }
        }
    }

    /// The given tree, or each receiver's first parent.
    fn tree(&self) -> Legs {
        self.setup.tree.clone().unwrap_or_else(|| self.record.tree())
    }

    fn add_struck(&self, struck: &CausedFault, left: Option<Rate>, report: &mut Report) {
        // The affected host: the one that joins, or the one whose progress triggered the fault.
        let host = match &struck.fault.what {
            FaultAction::Start(node) => node,
            FaultAction::Kill(_) | FaultAction::Rate(..) => &struck.fault.of,
        };
        let is_late = host != &struck.fault.of;
        let (held, before) = if is_late { (0.0, 0.0) } else { (struck.held, struck.before) };
        let best = left.map_or(before, |rate| rate.as_bps() as f64);
        let Some(received) = self.record.received.get(host) else { return };
        let finish = struck.at + (self.record.bytes as f64 - held) * 8.0 / best;
        report.add("struck", "s", struck.at);
        report.add("over_best", "ratio", received.after / finish);
        report.add("lost", "s", received.after - finish);
        let enough = RECOVERED * if is_late { best } else { best.min(before) };
        let all = self.record.held.get(host).map_or(&[][..], Vec::as_slice);
        // The first progress event after the fault covers a second that began before it.
        let mut later = all.iter().filter(|held| held.at > struck.at).skip(1);
        let recovered = later.find(|held| held.bps >= enough).map_or(received.after, |h| h.at);
        report.add("recover", "s", recovered - struck.at);
    }

    /// Reports each receiver's rate relative to the best simultaneous rates, and the rate that it could have alone.
    pub fn add_bound(&self, several: &SeveralParents, report: &mut Report) {
        let mut shares = Vec::new();
        for host in self.wanted {
            let Some(at) = self.setup.hosts.iter().position(|one| one == host) else { continue };
            let Some(received) = self.record.received.get(host) else { continue };
            let mbps = |rates: &[Rate]| rates.get(at).map_or(f64::NAN, |rate| rate.as_mbps());
            let rate = self.record.bytes as f64 * 8e-6 / received.seconds;
            shares.push(rate / mbps(&several.rates));
            report.add(format!("of_bound/{host}"), "ratio", rate / mbps(&several.rates));
            report.add(format!("bound/{host}"), "Mbit/s", mbps(&several.rates));
            report.add(format!("alone/{host}"), "Mbit/s", mbps(&several.alone));
        }
        spread(report, "of_bound", "ratio", shares);
    }
}

/// Eq. (2) with the simple formula, which the paper uses for Fig. 6, Mbit/s.
fn chain(way: &[Hop]) -> f64 {
    Formula::Simple.chain(SEGMENT, way).as_mbps()
}

/// Eq. (3), Mbit/s.
fn aggregate(way: &[Hop]) -> f64 {
    Formula::Simple.aggregate(SEGMENT, way).as_mbps()
}

/// Reports the minimum, the median and the maximum.
pub fn spread(report: &mut Report, name: &str, unit: &str, mut values: Vec<f64>) {
    values.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (values.first(), values.last()) else { return };
    let n = values.len();
    let median = f64::midpoint(values[(n - 1) / 2], values[n / 2]);
    report.add(format!("{name}_min"), unit, *least);
    report.add(format!("{name}_median"), unit, median);
    report.add(format!("{name}_max"), unit, *most);
}

/// A memory value of each running node, MiB.
pub fn memory(mesh: &CastMesh<'_>, hosts: &[String], line: &str) -> BTreeMap<String, f64> {
    let one = |host: &String| Some((host.clone(), mesh.memory_kb(host, line)? / 1024.0));
    hosts.iter().filter_map(one).collect()
}

/// Reports the most memory of a node and the greatest growth.
pub fn add_memory(
    report: &mut Report,
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
) {
    let grown = after.iter().filter_map(|(host, most)| Some(most - before.get(host)?));
    let largest = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::NAN, f64::max);
    report.add("memory_most", "MiB", largest(&mut after.values().copied()));
    report.add("memory_grown", "MiB", largest(&mut grown.into_iter()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn value(report: Report, name: &str) -> f64 {
        report.value(name).and_then(Value::as_f64).unwrap()
    }

    fn record() -> CastRecord {
        let mut record = CastRecord::default();
        record.add_line(r#"{"event":"started","bytes":10000000}"#, 0.0).unwrap();
        record
            .add_line(r#"{"event":"planned","receivers":[{"name":"a","parents":["s"]}]}"#, 0.0)
            .unwrap();
        for (at, held, bps) in [(1, 1e6, 8e6), (2, 2e6, 8e6), (3, 2e6, 0.0), (4, 3e6, 8e6)] {
            let line = format!(
                r#"{{"event":"progress","seconds":{at},"served_bytes":5,"ring_peak_bytes":0,"receivers":[{{"name":"a","held_bytes":{held},"rate_bps":{bps},"missed_symbols":0,"ring_peak_bytes":0,"parents":[]}}]}}"#
            );
            record.add_line(&line, f64::from(at)).unwrap();
        }
        record
            .add_line(
                r#"{"event":"received","receiver":"a","received_bytes":10100000,"duplicate_bytes":1000,"parents":[],"rate_bps":0,"seconds":10.0,"after_seconds":11.0}"#,
                11.2,
            )
            .unwrap();
        record
    }

    fn setup() -> CastSetup {
        let tree: Legs = "s>a".parse().unwrap();
        let rates = [(tree.0[0].clone(), 1e7)].into();
        CastSetup { hosts: vec!["s".to_owned(), "a".to_owned()], tree: None, rates }
    }

    #[test]
    fn rates_are_compared_with_the_slowest_hop() {
        let (record, setup, wanted) = (record(), setup(), ["a".to_owned()]);
        let results = CastResults { setup: &setup, wanted: &wanted, record: &record, struck: &[] };
        assert!((value(results.report(None), "hop/a") - 0.8).abs() < 1e-9);
        assert!((value(results.report(None), "parent/a") - 0.8).abs() < 1e-9);
        assert!((value(results.report(None), "beyond_most") - 1.0).abs() < 1e-9);
    }

    /// The example of the plan's Fig. 6: 20 ms and 0.0533 %, 20 ms and 0.102 %.
    #[test]
    fn figure_6_is_predicted_as_in_the_paper() {
        let hop = |loss| Hop { rtt: std::time::Duration::from_millis(20), loss };
        let way = [hop(0.000_533), hop(0.001_02)];
        assert!((chain(&way) - 22.2).abs() < 0.05, "{}", chain(&way));
        assert!((aggregate(&way) - 9.0).abs() < 0.05, "{}", aggregate(&way));
    }

    #[test]
    fn a_fault_is_compared_with_the_best_remaining_rate() {
        let (record, setup, wanted) = (record(), setup(), ["a".to_owned()]);
        let fault: PlannedFault = "kill=b@0.2:a".parse().unwrap();
        let struck = CausedFault { fault, is_done: true, at: 2.0, held: 2e6, before: 8e6 };
        let struck = [struck];
        let results =
            CastResults { setup: &setup, wanted: &wanted, record: &record, struck: &struck };
        // 8 MB at 8 Mbit/s end at 10 s; the cast ended at 11 s.
        assert!((value(results.report(None), "over_best") - 1.1).abs() < 1e-9);
        assert!((value(results.report(None), "recover") - 2.0).abs() < 1e-9);
        let left = Some(Rate::from_mbps(16.0));
        assert!((value(results.report(left), "lost") - 5.0).abs() < 1e-9);
    }

    #[test]
    fn the_spread_is_minimum_median_and_maximum() {
        let mut report = Report::default();
        spread(&mut report, "x", "s", vec![4.0, 1.0, 3.0, 2.0]);
        spread(&mut report, "none", "s", vec![]);
        let of = |name: &str| report.value(name).and_then(Value::as_f64);
        assert_eq!([of("x_min"), of("x_median"), of("x_max")], [Some(1.0), Some(2.5), Some(4.0)]);
        assert_eq!(of("none_min"), None);
    }
}
