//! A relay's metrics for Prometheus. Labels are from fixed sets, never a peer or a destination.

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::{ConstGauge, Gauge},
        histogram::Histogram,
    },
    registry::Registry,
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use thalweg_net::splice::PipePool;
use thalweg_net::{legs::Legs, pump::Moved};
use thalweg_wire::mesh::LegKind;

type Label = [(&'static str, &'static str); 1];

/// The upper bounds of the handshake histogram's buckets, seconds. A local handshake takes less than a millisecond; one
/// that waits for a name server and a distant destination takes seconds.
const HANDSHAKE_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// Reasons of refusals whose counters exist from the start, at zero. The others appear when they first occur; they are
/// faults of clients.
const USUAL_REFUSALS: [&str; 6] =
    ["address_class", "full", "not_member", "port", "quota_bytes", "quota_connections"];

/// How the client's leg is carried, as a label and in the log.
pub const fn leg_label(leg: LegKind) -> &'static str {
    match leg {
        LegKind::Sealed => "sealed",
        LegKind::Open => "open",
    }
}

/// How a connection ended, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both directions ended, and all was delivered.
    Closed,
    /// No second leg was established.
    Refused,
    /// A leg broke or was given up.
    Broken,
    /// The client's quota was used up during the connection.
    Quota,
    /// The client was revoked during the connection.
    Revoked,
    /// The session was dropped, because the node stops.
    Cut,
}

impl Outcome {
    const ALL: [Self; 6] =
        [Self::Closed, Self::Refused, Self::Broken, Self::Quota, Self::Revoked, Self::Cut];

    /// The label's value, and the log line's name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Refused => "refused",
            Self::Broken => "broken",
            Self::Quota => "quota",
            Self::Revoked => "revoked",
            Self::Cut => "cut",
        }
    }
}

/// A relay's metrics; cheap to clone.
#[derive(Clone, Debug)]
pub struct RelayMetrics {
    open: Gauge,
    ended: Family<Label, Counter>,
    refusals: Family<Label, Counter>,
    handshakes: Histogram,
    flows: Flows,
    legs: Legs,
}

impl Default for RelayMetrics {
    fn default() -> Self {
        let new = Self {
            open: Gauge::default(),
            ended: Family::default(),
            refusals: Family::default(),
            handshakes: Histogram::new(HANDSHAKE_BUCKETS),
            flows: Flows::default(),
            legs: Legs::default(),
        };
        // Created at zero, so that the first connection is seen as an increase.
        for outcome in Outcome::ALL {
            drop(new.ended.get_or_create(&[("outcome", outcome.label())]));
        }
        for reason in USUAL_REFUSALS {
            drop(new.refusals.get_or_create(&[("reason", reason)]));
        }
        new
    }
}

impl RelayMetrics {
    /// Creates metrics at zero and registers them with `registry`, as `thalweg_relay_…`.
    pub fn register(registry: &mut Registry) -> Self {
        let new = Self::default();
        let at = registry.sub_registry_with_prefix("thalweg_relay");
        at.register("connections_open", "Connections being served", new.open.clone());
        at.register("connections", "Ended connections by outcome", new.ended.clone());
        at.register("refusals", "Refused connections by reason", new.refusals.clone());
        let seconds = "Time from opening the request's channel to the reply";
        at.register("handshake_seconds", seconds, new.handshakes.clone());
        registry.register_collector(Box::new(new.flows.clone()));
        new
    }

    /// Counts a connection as open until the guard is dropped.
    pub fn connection(&self) -> OpenGuard {
        self.open.inc();
        OpenGuard { metrics: self.clone(), outcome: Outcome::Cut }
    }

    /// Counts the bytes of a connection as they move, until the guard is dropped.
    pub fn flow(&self, leg: LegKind, moved: &Arc<Moved>) -> FlowGuard {
        self.flows.add(leg, Arc::clone(moved))
    }

    /// Counts a refused connection; `reason` is from a fixed set ([`super::Refusal::reason`]).
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&[("reason", reason)]).inc();
    }

    /// Records the time that a request took to be answered.
    pub fn handshake(&self, took: Duration) {
        self.handshakes.observe(took.as_secs_f64());
    }

    /// The open connections, and the ended ones by outcome, for `thalweg status`.
    pub fn report(&self) -> serde_json::Value {
        let ended = |o: Outcome| self.ended.get_or_create(&[("outcome", o.label())]).get();
        let ended: serde_json::Map<_, _> =
            Outcome::ALL.into_iter().map(|o| (o.label().into(), ended(o).into())).collect();
        let bytes = self.bytes();
        serde_json::json!({ "open": self.open.get(), "ended": ended, "bytes": bytes })
    }

    /// The bytes relayed so far, in both directions.
    pub fn bytes(&self) -> u64 {
        self.flows.totals().values().map(|[up, down]| up + down).sum()
    }

    /// The number of open connections.
    pub fn open(&self) -> u64 {
        self.open.get().max(0).unsigned_abs()
    }

    /// Rates and round trips of the legs to members, measured by their transfers.
    pub fn legs(&self) -> &Legs {
        &self.legs
    }
}

/// The guard of [`RelayMetrics::connection`]. If it is dropped without [`OpenGuard::finish`], the connection counts as
/// cut: its session was dropped before its end.
#[derive(Debug)]
pub struct OpenGuard {
    metrics: RelayMetrics,
    outcome: Outcome,
}

impl OpenGuard {
    /// Records how the connection ended.
    pub fn finish(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.metrics.open.dec();
        self.metrics.ended.get_or_create(&[("outcome", self.outcome.label())]).inc();
    }
}

/// The bytes of ended and live connections. The counts of live connections are read on demand, so that the pump updates
/// only its own counters.
#[derive(Clone, Debug, Default)]
struct Flows(Arc<Mutex<FlowCounts>>);

#[derive(Debug, Default)]
struct FlowCounts {
    /// Bytes up and down of ended connections.
    ended: BTreeMap<LegKind, [u64; 2]>,
    live: BTreeMap<u64, (LegKind, Arc<Moved>)>,
    next: u64,
}

fn both(moved: &Moved) -> [u64; 2] {
    [&moved.up, &moved.down].map(|n| n.load(Ordering::Relaxed))
}

fn add(totals: &mut BTreeMap<LegKind, [u64; 2]>, leg: LegKind, [up, down]: [u64; 2]) {
    let total = totals.entry(leg).or_default();
    *total = [total[0] + up, total[1] + down];
}

impl Flows {
    fn add(&self, leg: LegKind, moved: Arc<Moved>) -> FlowGuard {
        let mut ledger = self.0.lock();
        let id = ledger.next;
        ledger.next += 1;
        ledger.live.insert(id, (leg, moved));
        FlowGuard { id, flows: self.clone() }
    }

    fn totals(&self) -> BTreeMap<LegKind, [u64; 2]> {
        let ledger = self.0.lock();
        // At zero from the start, so that the first byte is seen as an increase.
        let mut totals = BTreeMap::from([LegKind::Sealed, LegKind::Open].map(|leg| (leg, [0; 2])));
        ledger.ended.iter().for_each(|(leg, moved)| add(&mut totals, *leg, *moved));
        for (leg, moved) in ledger.live.values() {
            add(&mut totals, *leg, both(moved));
        }
        totals
    }
}

impl Collector for Flows {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Bytes relayed, by direction and kind of the client's leg.";
        let name = "thalweg_relay_bytes";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (leg, moved) in self.totals() {
            for (direction, bytes) in ["up", "down"].into_iter().zip(moved) {
                let labels = [("direction", direction), ("leg", leg_label(leg))];
                ConstCounter::new(bytes).encode(family.encode_family(&labels)?)?;
            }
        }
        let pipes = PipePool::of_process().open();
        let pipes = ConstGauge::new(i64::try_from(pipes).unwrap_or(i64::MAX));
        let help = "Open pipes for splicing.";
        let name = "thalweg_relay_pipes_open";
        pipes.encode(encoder.encode_descriptor(name, help, None, pipes.metric_type())?)
    }
}

/// The guard of [`RelayMetrics::flow`].
#[derive(Debug)]
pub struct FlowGuard {
    id: u64,
    flows: Flows,
}

impl Drop for FlowGuard {
    fn drop(&mut self) {
        let mut ledger = self.flows.0.lock();
        if let Some((leg, moved)) = ledger.live.remove(&self.id) {
            add(&mut ledger.ended, leg, both(&moved));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::encoding::text::encode;

    fn page(registry: &Registry) -> String {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    }

    #[test]
    fn live_and_ended_flows_are_counted_once() {
        let mut registry = Registry::default();
        let metrics = RelayMetrics::register(&mut registry);
        let (a, b) = (Arc::new(Moved::default()), Arc::new(Moved::default()));
        let flow = metrics.flow(LegKind::Open, &a);
        let _other = metrics.flow(LegKind::Sealed, &b);
        a.up.store(5, Ordering::Relaxed);
        b.down.store(7, Ordering::Relaxed);
        for _ in 0..2 {
            let text = page(&registry);
            for line in [
                "thalweg_relay_bytes_total{direction=\"up\",leg=\"open\"} 5\n",
                "thalweg_relay_bytes_total{direction=\"down\",leg=\"sealed\"} 7\n",
                "thalweg_relay_bytes_total{direction=\"down\",leg=\"open\"} 0\n",
            ] {
                assert!(text.contains(line), "{line} in {text}");
            }
        }
        drop(flow);
        assert!(page(&registry).contains("{direction=\"up\",leg=\"open\"} 5\n"));
    }

    #[test]
    fn outcomes_refusals_and_open_connections_are_exported() {
        let mut registry = Registry::default();
        let metrics = RelayMetrics::register(&mut registry);
        let open = metrics.connection();
        metrics.connection().finish(Outcome::Quota);
        metrics.refused("avoid");
        metrics.handshake(Duration::from_millis(3));
        let text = page(&registry);
        for line in [
            "thalweg_relay_connections_open 1\n",
            "thalweg_relay_connections_total{outcome=\"quota\"} 1\n",
            "thalweg_relay_connections_total{outcome=\"closed\"} 0\n",
            "thalweg_relay_refusals_total{reason=\"avoid\"} 1\n",
            "thalweg_relay_handshake_seconds_count 1\n",
            "thalweg_relay_pipes_open ",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        drop(open);
        let text = page(&registry);
        assert!(text.contains("connections_open 0\n") && text.contains("{outcome=\"cut\"} 1\n"));
        assert_eq!(metrics.report()["ended"]["quota"], 1);
    }
}
