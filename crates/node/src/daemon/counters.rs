//! The daemon's counters, for `GET /metrics` and `thalweg status`.

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};
use serde::{Deserialize, Serialize};
use thalweg_net::channel::Protocol;
use utoipa::ToSchema;

/// One label and its value.
type Label = [(&'static str, &'static str); 1];

/// The daemon's counters; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    accepted: Counter,
    strangers: Family<Label, Counter>,
    accept_failures: Counter,
    handshakes: Gauge,
    channels: Family<Label, Counter>,
    live: Family<Label, Gauge>,
    local: Counter,
}

/// The counters at one moment, as the local API shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// Connections that were accepted.
    pub accepted: u64,
    /// Connections that got no channel: unknown keys, broken and slow handshakes.
    pub strangers: u64,
    /// Channels that are open now, of all protocols.
    pub channels: u64,
    /// Connections of local programs (SOCKS5) since the start.
    pub local: u64,
}

/// Why a connection got no channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrangerKind {
    /// TLS failed: no key, another protocol, a broken connection.
    Handshake,
    /// The key is not admitted.
    Key,
    /// The channel has come through too many relays.
    Depth,
    /// The handshake took too long.
    Slow,
    /// All places for handshakes, or for channels of this member or source, were taken.
    Crowded,
}

impl StrangerKind {
    const ALL: [Self; 5] = [Self::Handshake, Self::Key, Self::Depth, Self::Slow, Self::Crowded];

    /// The word for logs and labels.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Key => "key",
            Self::Depth => "depth",
            Self::Slow => "slow",
            Self::Crowded => "crowded",
        }
    }
}

/// The protocols that a node can serve.
const SERVED: [Protocol; 12] = [
    Protocol::Api,
    Protocol::Join,
    Protocol::Relay,
    Protocol::Measure,
    Protocol::Object,
    Protocol::Submit,
    Protocol::Cast,
    Protocol::Bond,
    Protocol::Probe,
    Protocol::Stream,
    Protocol::Doctor,
    Protocol::Reach,
];

const fn label(protocol: Protocol) -> Label {
    [("protocol", protocol_label(protocol))]
}

/// The name in logs and metric labels.
pub const fn protocol_label(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Api => "api",
        Protocol::Join => "join",
        Protocol::Relay => "relay",
        Protocol::Measure => "measure",
        Protocol::Object => "object",
        Protocol::Submit => "submit",
        Protocol::Cast => "cast",
        Protocol::Bond => "bond",
        Protocol::Probe => "probe",
        Protocol::Stream => "stream",
        Protocol::Doctor => "doctor",
        Protocol::Reach => "reach",
    }
}

impl Counters {
    /// Creates counters at zero, and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let new = Self::default();
        // At zero from the start, so that the first one is seen as an increase.
        for why in StrangerKind::ALL {
            drop(new.strangers.get_or_create(&[("reason", why.label())]));
        }
        for protocol in SERVED {
            drop(new.channels.get_or_create(&label(protocol)));
            drop(new.live.get_or_create(&label(protocol)));
        }
        let registry = registry.sub_registry_with_prefix("thalweg_node");
        let help = "Connections accepted";
        registry.register("accepted_connections", help, new.accepted.clone());
        registry.register(
            "strangers",
            "Connections that were closed before a channel was open, by reason",
            new.strangers.clone(),
        );
        let failures = new.accept_failures.clone();
        registry.register(
            "accept_failures",
            "Failed accept calls, for example for lack of file descriptors",
            failures,
        );
        registry.register("handshakes", "Handshakes in progress", new.handshakes.clone());
        registry.register("channels", "Channels opened, by protocol", new.channels.clone());
        registry.register("channels_open", "Channels open now, by protocol", new.live.clone());
        registry.register("local_connections", "Connections of local programs", new.local.clone());
        new
    }

    /// Counts an accepted connection.
    pub fn accepted(&self) {
        self.accepted.inc();
    }

    /// Counts a failed accept.
    pub fn accept_failed(&self) {
        self.accept_failures.inc();
    }

    /// Counts a connection that got no channel.
    pub fn stranger(&self, why: StrangerKind) {
        self.strangers.get_or_create(&[("reason", why.label())]).inc();
    }

    /// Counts a connection of a local program.
    pub fn local(&self) {
        self.local.inc();
    }

    /// Sets the number of handshakes in progress.
    pub fn handshakes(&self, now: usize) {
        self.handshakes.set(i64::try_from(now).unwrap_or(i64::MAX));
    }

    /// Counts a channel, which is open until the guard is dropped.
    pub fn open(&self, protocol: Protocol) -> OpenChannel {
        self.channels.get_or_create(&label(protocol)).inc();
        let live = self.live.get_or_create_owned(&label(protocol));
        live.inc();
        OpenChannel(live)
    }

    pub fn counts(&self) -> Counts {
        let strangers =
            |why: &StrangerKind| self.strangers.get_or_create(&[("reason", why.label())]).get();
        let live = |p: &Protocol| self.live.get_or_create(&label(*p)).get().max(0).unsigned_abs();
        Counts {
            accepted: self.accepted.get(),
            strangers: StrangerKind::ALL.iter().map(strangers).sum(),
            channels: SERVED.iter().map(live).sum(),
            local: self.local.get(),
        }
    }
}

/// Counts a channel as open while it lives.
#[derive(Debug)]
pub struct OpenChannel(Gauge);

impl Drop for OpenChannel {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_shown_from_zero_on() {
        let mut registry = Registry::default();
        let counters = Counters::register(&mut registry);
        let shown = |registry: &Registry| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
            text
        };
        assert!(shown(&registry).contains("thalweg_node_strangers_total{reason=\"key\"} 0\n"));
        counters.stranger(StrangerKind::Key);
        let open = counters.open(Protocol::Relay);
        let text = shown(&registry);
        assert!(text.contains("thalweg_node_strangers_total{reason=\"key\"} 1\n"), "{text}");
        assert!(text.contains("thalweg_node_channels_open{protocol=\"relay\"} 1\n"), "{text}");
        assert_eq!((counters.counts().strangers, counters.counts().channels), (1, 1));
        drop(open);
        assert_eq!(counters.counts().channels, 0);
    }
}
