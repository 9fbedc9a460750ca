//! The spool's gauges, for `GET /metrics`.

use super::Spool;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::gauge::ConstGauge,
};
use std::fmt;

/// The spool as a collector of metrics.
#[derive(Debug)]
pub(super) struct Gauges(pub Spool);

impl Collector for Gauges {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (used, entries) = (self.0.used(), self.0.lock().count() as u64);
        let gauges = [
            ("bytes", "Bytes of other members' data on disk.", used),
            ("entries", "Entries of other members' data.", entries),
            ("limit_bytes", "Maximum bytes of other members' data.", self.0.0.bound),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let name = format!("thalweg_files_spool_{name}");
            let encoder = encoder.encode_descriptor(&name, help, None, gauge.metric_type())?;
            gauge.encode(encoder)?;
        }
        Ok(())
    }
}
