//! OpenMetrics gauges of the interfaces.

use super::{InterfaceStatus, Uplinks};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::gauge::ConstGauge,
};
use std::{fmt, time::Duration};
use thalweg_units::Time;

/// Collects `thalweg_interface_…` on each scrape; the label names the interface. An estimate that is not known is 0.
#[derive(Debug)]
pub struct InterfaceMetrics(pub Uplinks);

/// A gauge's name, help text and value.
type InterfaceColumn = (&'static str, &'static str, fn(&InterfaceStatus, Time) -> f64);

const COLUMNS: [InterfaceColumn; 9] = [
    ("thalweg_interface_down_bps", "Estimated download rate, bit/s", |s, _| bps(s.estimate.down())),
    ("thalweg_interface_up_bps", "Estimated upload rate, bit/s", |s, _| bps(s.estimate.up())),
    ("thalweg_interface_rtt_seconds", "Estimated round-trip time", |s, _| {
        s.estimate.rtt().as_secs_f64()
    }),
    ("thalweg_interface_loss", "Share of the sent data that was retransmitted", |s, _| {
        s.estimate.loss().unwrap_or(0.0)
    }),
    (
        "thalweg_interface_heard_seconds",
        "Time since the newest rate of the interface; -1: unknown",
        |s, now| {
            let heard = s.estimate.age(now).filter(|age| *age < Duration::MAX);
            heard.map_or(-1.0, |age| age.as_secs_f64())
        },
    ),
    ("thalweg_interface_connections", "Open connections over the interface", |s, _| {
        s.connections as f64
    }),
    (
        "thalweg_interface_load_bytes",
        "Bytes that open connections are still expected to move",
        |s, _| s.load as f64,
    ),
    ("thalweg_interface_used_bytes", "Bytes moved in both directions in this period", |s, _| {
        s.used as f64
    }),
    ("thalweg_interface_cap_bytes", "Cap on the bytes of a period; -1: none", |s, _| {
        s.cap.map_or(-1.0, |cap| cap as f64)
    }),
];

fn bps(rate: thalweg_units::Rate) -> f64 {
    rate.as_bps() as f64
}

impl Collector for InterfaceMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (all, now) = (self.0.table().show(self.0.today()), self.0.now());
        for (name, help, value) in COLUMNS {
            let kind = ConstGauge::new(0.0).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for shown in &all {
                let label = [("interface", shown.name.as_str())];
                ConstGauge::new(value(shown, now)).encode(family.encode_family(&label)?)?;
            }
        }
        Ok(())
    }
}
