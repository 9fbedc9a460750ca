//! OpenMetrics gauges of the interfaces.

use super::{InterfaceStatus, Uplinks};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::gauge::ConstGauge,
};
use std::{fmt, time::Duration};
use thalweg_units::{Rate, Time};

/// Collects `thalweg_interface_…` on each scrape; the label names the interface. An unknown value has no series.
#[derive(Debug)]
pub struct InterfaceMetrics(pub Uplinks);

/// A gauge's name, help text and value, if it is known.
type InterfaceColumn = (&'static str, &'static str, fn(&InterfaceStatus, Time) -> Option<f64>);

const COLUMNS: [InterfaceColumn; 9] = [
    ("thalweg_interface_down_bytes_per_second", "Estimated download rate.", |s, _| {
        bytes_per_second(s.estimate.down())
    }),
    ("thalweg_interface_up_bytes_per_second", "Estimated upload rate.", |s, _| {
        bytes_per_second(s.estimate.up())
    }),
    ("thalweg_interface_rtt_seconds", "Estimated round-trip time.", |s, _| {
        Some(s.estimate.rtt()).filter(|rtt| !rtt.is_zero()).map(|rtt| rtt.as_secs_f64())
    }),
    ("thalweg_interface_loss_ratio", "Share of the sent data that was retransmitted.", |s, _| {
        s.estimate.loss()
    }),
    ("thalweg_interface_rate_age_seconds", "Age of the newest estimated rate.", |s, now| {
        let age = s.estimate.age(now).filter(|age| *age < Duration::MAX);
        age.map(|age| age.as_secs_f64())
    }),
    ("thalweg_interface_connections", "Open connections over the interface.", |s, _| {
        Some(s.connections as f64)
    }),
    (
        "thalweg_interface_load_bytes",
        "Bytes that open connections are still expected to move.",
        |s, _| Some(s.load as f64),
    ),
    ("thalweg_interface_used_bytes", "Bytes moved in both directions in this period.", |s, _| {
        Some(s.used as f64)
    }),
    ("thalweg_interface_cap_bytes", "Limit of the bytes of a period.", |s, _| {
        s.cap.map(|cap| cap as f64)
    }),
];

/// The rate in Prometheus's base unit; `None`: not known.
fn bytes_per_second(rate: Rate) -> Option<f64> {
    (rate > Rate::ZERO).then(|| rate.as_bps() as f64 / 8.0)
}

impl Collector for InterfaceMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (all, now) = (self.0.table().show(self.0.today()), self.0.now());
        for (name, help, value) in COLUMNS {
            let kind = ConstGauge::new(0.0).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for shown in &all {
                let Some(value) = value(shown, now) else { continue };
                let label = [("interface", shown.name.as_str())];
                ConstGauge::new(value).encode(family.encode_family(&label)?)?;
            }
        }
        Ok(())
    }
}
