//! The calibration of this host, shown to its owner in status and metrics.

use super::Trains;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::gauge::ConstGauge,
    registry::Registry,
};
use serde_json::{Value, json};
use std::{
    fmt,
    time::{Duration, Instant},
};
use thalweg_measure::train::Calibration;

impl Trains {
    /// The calibration for `GET /v1/status` of the local API; null before the first one.
    pub fn calibration_report(&self) -> Value {
        self.known().map(report).unwrap_or_default()
    }

    /// Registers the calibration as `thalweg_trains_…`; before the first one there is nothing.
    pub fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(CalibrationMetrics(self.clone())));
    }
}

fn report((at, host): (Instant, Calibration)) -> Value {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    json!({
        "is_valid": host.is_valid,
        "gap_error_ns": host.gap_error.map(nanos),
        "shortest_gap_ns": nanos(host.shortest_gap()),
        "honest_bps": host.honest.as_bps(),
        "send_ns": nanos(host.send_latency),
        "receive_ns": nanos(host.receive_latency),
        "age_seconds": at.elapsed().as_secs(),
    })
}

/// Reads the calibration when metrics are collected.
#[derive(Debug)]
struct CalibrationMetrics(Trains);

impl Collector for CalibrationMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some((_, host)) = self.0.known() else { return Ok(()) };
        let [half, most] = host.gap_error.map(|error| error.as_secs_f64());
        for (name, help, value) in [
            (
                "valid",
                "Whether the host was idle enough when it was calibrated.",
                f64::from(host.is_valid),
            ),
            ("gap_error_median_seconds", "Median timing error of the gaps between probes.", half),
            (
                "gap_error_p99_seconds",
                "99th percentile of the timing error of the gaps between probes.",
                most,
            ),
            (
                "shortest_gap_seconds",
                "Shortest gap between probes that this host keeps accurately.",
                host.shortest_gap().as_secs_f64(),
            ),
            (
                "accurate_rate_bytes_per_second",
                "Highest rate at which this host sends trains accurately.",
                host.honest.as_bps() as f64 / 8.0,
            ),
        ] {
            let (name, gauge) = (format!("thalweg_trains_{name}"), ConstGauge::new(value));
            gauge.encode(encoder.encode_descriptor(&name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prober::ProbeBudget;
    use prometheus_client::encoding::text::encode;
    use std::sync::Arc;
    use thalweg_base::{budget::Budget, log::Log};
    use thalweg_units::{ByteSize, Rate};

    #[test]
    fn the_calibration_is_shown_in_status_and_metrics() {
        let probe_budget = ProbeBudget::new(Arc::new(Budget::new()), ByteSize::from_bytes(1000));
        let trains = Trains::new(Arc::new(probe_budget), Log::to_queue().0);
        let (mut registry, mut text) = (Registry::default(), String::new());
        trains.register(&mut registry);
        encode(&mut text, &registry).unwrap();
        assert!(
            trains.calibration_report().is_null() && !text.contains("thalweg_trains"),
            "{text}"
        );
        let us = Duration::from_micros;
        trains.set_calibration(Calibration {
            send_latency: us(4),
            receive_latency: us(8),
            gap_error: [us(2), us(250)],
            honest: Rate::from_bps(120_000_000),
            is_valid: true,
        });
        let found = trains.calibration_report();
        assert_eq!(
            (&found["gap_error_ns"], &found["is_valid"]),
            (&json!([2000, 250_000]), &json!(true))
        );
        // 1500 bytes at that rate.
        assert_eq!(
            (&found["shortest_gap_ns"], &found["receive_ns"]),
            (&json!(100_000), &json!(8000))
        );
        encode(&mut text, &registry).unwrap();
        for line in [
            "thalweg_trains_valid 1.0\n",
            "thalweg_trains_gap_error_p99_seconds 0.00025\n",
            "thalweg_trains_accurate_rate_bytes_per_second 15000000.0\n",
        ] {
            assert!(text.contains(line), "{line} not in {text}");
        }
    }
}
