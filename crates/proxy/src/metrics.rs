//! The proxy's counters as OpenMetrics.

use super::{record::Tally, server::HostInterfaces};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, text::encode},
    metrics::counter::ConstCounter,
    registry::Registry,
};
use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64, atomic::Ordering::Relaxed},
};
use thalweg_uplinks::{
    bond::{BondMetrics, Bonding},
    interfaces::InterfaceMetrics,
};

#[derive(Debug)]
struct TallyCollector(Arc<Tally>);

/// A counter's name, help text, and where it is kept.
type Column = (&'static str, &'static str, fn(&Tally) -> &AtomicU64);

const COLUMNS: [Column; 8] = [
    ("thalweg_proxy_connections", "Connections from programs.", |t| &t.connections),
    ("thalweg_proxy_requests", "Requests answered by an origin.", |t| &t.requests),
    ("thalweg_proxy_tunnels", "Tunnels that have ended.", |t| &t.tunnels),
    ("thalweg_proxy_detoured", "Requests and tunnels on a path other than the direct one.", |t| {
        &t.detoured
    }),
    ("thalweg_proxy_split", "Requests fetched in ranges over several paths.", |t| &t.split),
    ("thalweg_proxy_failures", "Requests and tunnels that failed.", |t| &t.refused),
    ("thalweg_proxy_up_bytes", "Bytes of content from programs.", |t| &t.up),
    ("thalweg_proxy_down_bytes", "Bytes of content to programs.", |t| &t.down),
];

impl Collector for TallyCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (name, help, value) in COLUMNS {
            let counter = ConstCounter::new(value(&self.0).load(Relaxed));
            counter.encode(encoder.encode_descriptor(
                name,
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        Ok(())
    }
}

/// Creates a registry of the proxy's counters and, if the proxy uses them, of the interfaces and bonds in `over`.
pub(super) fn registry(tally: &Arc<Tally>, over: Option<&HostInterfaces>) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(TallyCollector(Arc::clone(tally))));
    if let Some(HostInterfaces { uplinks, bonds }) = over {
        registry.register_collector(Box::new(InterfaceMetrics(uplinks.clone())));
        let bonds = bonds.clone();
        let shown = move || bonds.as_ref().map(Bonding::shown).unwrap_or_default();
        registry.register_collector(Box::new(BondMetrics(Box::new(shown))));
    }
    registry
}

/// Encodes the registry as text; empty if encoding fails, which is not expected.
pub(super) fn text(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).map(|()| text).unwrap_or_default()
}
