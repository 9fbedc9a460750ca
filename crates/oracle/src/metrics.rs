//! Metrics of the oracle in this node, for `GET /metrics`. No label names a peer.

use crate::{MeasureCounts, Oracle};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{
        MetricType,
        counter::ConstCounter,
        gauge::{ConstGauge, Gauge},
    },
};
use std::{fmt, sync::atomic::AtomicU64};

/// An oracle's counts, read at each collection.
#[derive(Debug)]
pub struct OracleMetrics(pub Oracle);

/// A metric's name and help text.
type Descriptor = (&'static str, &'static str);

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Descriptor,
    value: u64,
) -> fmt::Result {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
}

/// A counter with one label.
fn family(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): Descriptor,
    label: &'static str,
    values: &[(&'static str, u64)],
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (word, value) in values {
        ConstCounter::new(*value).encode(family.encode_family(&[(label, *word)])?)?;
    }
    Ok(())
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, (name, help): Descriptor, value: f64) -> fmt::Result {
    let gauge: Gauge<f64, AtomicU64> = Gauge::default();
    gauge.set(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

impl Collector for OracleMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        encode(&mut encoder, &self.0.measured(), self.0.is_elected())
    }
}

fn encode(to: &mut DescriptorEncoder<'_>, now: &MeasureCounts, is_elected: bool) -> fmt::Result {
    let elected = ("thalweg_oracle_elected", "1 if this oracle schedules measurements.");
    ConstGauge::new(i64::from(is_elected)).encode(to.encode_descriptor(
        elected.0,
        elected.1,
        None,
        MetricType::Gauge,
    )?)?;
    counter(to, ("thalweg_oracle_orders", "Measurements ordered."), now.ordered)?;
    let lost = [("expired", now.expired), ("failed", now.failed)];
    family(
        to,
        ("thalweg_oracle_orders_lost", "Ordered measurements that expired or failed, by reason."),
        "reason",
        &lost,
    )?;
    let verdicts = [("agreed", now.agreed), ("disputed", now.disputed), ("sole", now.sole)];
    let descriptor = (
        "thalweg_oracle_measurements",
        "Measurements by verdict: both ends agreed, both ends disagreed, only one end reported.",
    );
    family(to, descriptor, "verdict", &verdicts)?;
    let least = ("thalweg_oracle_lower_bounds", "Measurements that are lower bounds.");
    counter(to, least, now.at_least)?;
    let reports = [
        ("passive", now.passive),
        ("probed", now.probed),
        ("repeated", now.repeated),
        ("refused", now.refused),
    ];
    family(
        to,
        ("thalweg_oracle_reports", "Reports other than ordered measurements, by kind."),
        "kind",
        &reports,
    )?;
    counter(to, ("thalweg_oracle_measured_bytes", "Bytes moved by measurements."), now.bytes)?;
    gauge(to, ("thalweg_oracle_estimates", "Estimates in the table."), now.estimates as f64)?;
    gauge(to, ("thalweg_oracle_legs", "Legs in the last ranking."), now.legs as f64)?;
    let took = ("thalweg_oracle_rank_duration_seconds", "Duration of the last ranking.");
    gauge(to, took, now.rank_took.as_secs_f64())?;
    // Before the first ranking the family has no series.
    let family = to.encode_descriptor(
        "thalweg_oracle_rank_age_seconds",
        "Age of the last ranking.",
        None,
        MetricType::Gauge,
    )?;
    match now.rank_age {
        Some(age) => ConstGauge::new(age.as_secs_f64()).encode(family),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::{encoding::text, registry::Registry};
    use std::time::Duration;

    #[derive(Debug)]
    struct Fixed(MeasureCounts);

    impl Collector for Fixed {
        fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
            encode(&mut encoder, &self.0, true)
        }
    }

    #[test]
    fn counts_come_out_as_openmetrics() {
        let mut registry = Registry::default();
        let counts = MeasureCounts {
            ordered: 9,
            failed: 2,
            agreed: 5,
            disputed: 1,
            bytes: 77,
            rank_age: Some(Duration::from_millis(1500)),
            rank_took: Duration::from_millis(250),
            ..MeasureCounts::default()
        };
        registry.register_collector(Box::new(Fixed(counts)));
        let mut shown = String::new();
        text::encode(&mut shown, &registry).unwrap();
        for line in [
            "thalweg_oracle_elected 1\n",
            "thalweg_oracle_orders_total 9\n",
            "thalweg_oracle_orders_lost_total{reason=\"failed\"} 2\n",
            "thalweg_oracle_measurements_total{verdict=\"agreed\"} 5\n",
            "thalweg_oracle_measurements_total{verdict=\"disputed\"} 1\n",
            "thalweg_oracle_measured_bytes_total 77\n",
            "thalweg_oracle_rank_duration_seconds 0.25\n",
            "thalweg_oracle_rank_age_seconds 1.5\n",
        ] {
            assert!(shown.contains(line), "{line} not in {shown}");
        }
    }
}
