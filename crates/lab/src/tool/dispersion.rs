//! Analyses received packet trains: the rate from their dispersion, and the errors of their gaps. Pure.

use super::{
    arrivals::{DatagramArrival, DatagramArrivals},
    statistics::Summary,
    wire::DatagramPlan,
};
use serde::Serialize;

/// One train at the sink.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Train {
    /// The train's number.
    pub train: u32,
    /// Datagrams received, without duplicates.
    pub received: u32,
    /// 8·L·(n−1)/(t_n−t_1), bit/s, over all n packets of L bytes; `None` unless n ≥ 2 and all packets arrived in order.
    pub rate: Option<f64>,
    /// The rate without the first packet, as pathload computes it (ADR): 8·L·(n−2)/(t_n−t_2), bit/s.
    pub rate_without_first: Option<f64>,
    /// The rate at which the source sent the train, by the formula of `rate`, bit/s.
    pub sent_rate: Option<f64>,
}

/// The sink's report on a measurement with trains.
#[derive(Clone, Debug, Serialize)]
pub struct TrainReport {
    /// Datagrams dropped by this host's socket, because its buffer was full or a checksum was wrong.
    pub host_drops: u32,
    /// Trains of which every packet arrived, in order.
    pub complete: usize,
    /// Summary of the complete trains' rates.
    pub rate: Option<Summary>,
    /// Summary of the complete trains' rates without the first packet.
    pub rate_without_first: Option<Summary>,
    /// Summary of the complete trains' sending rates.
    pub sent_rate: Option<Summary>,
    /// Summary of |received gap − sent gap| of neighbours that both arrived.
    pub gap_error: Option<Summary>,
    pub trains: Vec<Train>,
}

impl TrainReport {
    /// Analyses all trains. O(n log n).
    pub fn new(plan: &DatagramPlan, arrivals: &DatagramArrivals) -> Self {
        let (mut trains, mut errors) = (Vec::new(), Vec::new());
        for (number, train) in by_train(&arrivals.list) {
            errors.extend(gap_errors(&train));
            trains.push(Train::new(plan, number, &train));
        }
        let over = |f: fn(&Train) -> Option<f64>| {
            Summary::from_samples("bit/s", trains.iter().filter_map(f).collect())
        };
        Self {
            host_drops: arrivals.host_drops,
            complete: trains.iter().filter(|t| t.rate.is_some()).count(),
            rate: over(|t| t.rate),
            rate_without_first: over(|t| t.rate_without_first),
            sent_rate: over(|t| t.sent_rate),
            gap_error: Summary::from_samples("us", errors),
            trains,
        }
    }
}

/// The arrivals of each train, in the order of arrival, without duplicates.
fn by_train(list: &[DatagramArrival]) -> Vec<(u32, Vec<DatagramArrival>)> {
    let mut trains: Vec<(u32, Vec<DatagramArrival>)> = Vec::new();
    let mut sorted = list.to_vec();
    sorted.sort_by_key(|a| (a.train, a.received_ns));
    for arrival in sorted {
        match trains.last_mut() {
            Some((number, train)) if *number == arrival.train => train.push(arrival),
            _ => trains.push((arrival.train, vec![arrival])),
        }
    }
    for (_, train) in &mut trains {
        let mut seen = std::collections::BTreeSet::new();
        train.retain(|a| seen.insert(a.seq));
    }
    trains
}

impl Train {
    fn new(plan: &DatagramPlan, number: u32, train: &[DatagramArrival]) -> Self {
        let in_order = train.iter().map(|a| a.seq).eq(0..plan.packets);
        let bits = f64::from(plan.size) * 8.0;
        let rate = |of: fn(&DatagramArrival) -> u64, skip: usize| {
            let part = train.get(skip..).filter(|p| in_order && p.len() >= 2)?;
            let span = of(part.last()?).checked_sub(of(part.first()?)).filter(|ns| *ns > 0)?;
            Some(bits * (part.len() - 1) as f64 * 1e9 / span as f64)
        };
        Self {
            train: number,
            received: train.len() as u32,
            rate: rate(|a| a.received_ns, 0),
            rate_without_first: rate(|a| a.received_ns, 1),
            sent_rate: rate(|a| a.sent_ns, 0),
        }
    }
}

/// The change of each gap between neighbours on the path, µs.
fn gap_errors(train: &[DatagramArrival]) -> impl Iterator<Item = f64> {
    train.windows(2).filter(|w| w[0].seq.wrapping_add(1) == w[1].seq).map(|w| {
        let received = w[1].received_ns as f64 - w[0].received_ns as f64;
        let sent = w[1].sent_ns as f64 - w[0].sent_ns as f64;
        (received - sent).abs() / 1e3
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::wire::ReportKind;

    const MS: u64 = 1_000_000;

    fn plan(packets: u32) -> DatagramPlan {
        let report = ReportKind::Trains;
        DatagramPlan { session: 1, trains: 1, packets, size: 1250, report, settle_ns: 0 }
    }

    /// Packets sent 0.5 ms apart and received `gap` ns apart.
    fn spaced(n: u32, gap: u64) -> Vec<DatagramArrival> {
        let at = |seq| DatagramArrival {
            train: 0,
            seq,
            sent_ns: u64::from(seq) * MS / 2,
            received_ns: 40 * MS + u64::from(seq) * gap,
        };
        (0..n).map(at).collect()
    }

    fn report(plan: &DatagramPlan, list: Vec<DatagramArrival>) -> TrainReport {
        let mut arrivals = DatagramArrivals::expecting(plan);
        arrivals.list = list;
        TrainReport::new(plan, &arrivals)
    }

    #[test]
    fn packets_of_1250_bytes_one_millisecond_apart_are_10_mbit() {
        let r = report(&plan(5), spaced(5, MS));
        let train = &r.trains[0];
        assert_eq!((train.rate, train.sent_rate), (Some(1e7), Some(2e7)));
        assert_eq!(train.rate_without_first, Some(1e7));
        assert_eq!(r.gap_error.unwrap().max, 500.0);
    }

    #[test]
    fn a_late_first_packet_changes_only_the_full_rate() {
        let mut list = spaced(5, MS);
        list[0].received_ns += MS / 2;
        let train = report(&plan(5), list).trains[0].clone();
        assert_eq!(train.rate_without_first, Some(1e7));
        assert!(train.rate > Some(1.1e7));
    }

    #[test]
    fn loss_or_reordering_leaves_a_train_without_a_rate_and_duplicates_are_ignored() {
        let mut hole = spaced(5, MS);
        hole.remove(2);
        assert_eq!(report(&plan(5), hole).complete, 0);
        let mut swapped = spaced(5, MS);
        swapped[1].received_ns += 3 * MS / 2;
        assert_eq!(report(&plan(5), swapped).complete, 0);
        let mut twice = spaced(5, MS);
        twice.push(DatagramArrival { received_ns: 60 * MS, ..twice[1] });
        let r = report(&plan(5), twice);
        assert_eq!((r.complete, r.trains[0].received), (1, 5));
        assert_eq!(r.trains[0].rate, Some(1e7));
    }
}
