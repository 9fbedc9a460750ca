//! Counters of files served and received, for `GET /metrics` and `thalweg status`. No label names a peer.

use prometheus_client::{metrics::counter::Counter, registry::Registry};

/// Counts since the daemon's start.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Requests of all kinds.
    pub requests: Counter,
    /// Files and requests that were answered with a failure.
    pub failed: Counter,
    /// Requests that were refused because all `max_channels` slots were taken.
    pub busy: Counter,
    /// Bytes to other members, messages included.
    pub sent: Counter,
    /// Bytes of files from other members.
    pub received: Counter,
    /// Files of other members that were stored completely.
    pub stored: Counter,
}

impl Counts {
    /// Registers the counters with `registry`, as `thalweg_files_…`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("thalweg_files");
        registry.register("requests", "Requests for files", self.requests.clone());
        registry.register(
            "failures",
            "Files and requests answered with a failure",
            self.failed.clone(),
        );
        registry.register(
            "busy_refusals",
            "Requests refused because all channels were in use",
            self.busy.clone(),
        );
        registry.register("sent_bytes", "Bytes sent to other members", self.sent.clone());
        registry.register("received_bytes", "Bytes of files received", self.received.clone());
        registry.register("stored", "Files received completely", self.stored.clone());
    }

    /// The counters as JSON, for `thalweg status`.
    pub fn report(&self) -> serde_json::Value {
        serde_json::json!({
            "requests": self.requests.get(),
            "failed": self.failed.get(),
            "busy": self.busy.get(),
            "sent_bytes": self.sent.get(),
            "received_bytes": self.received.get(),
            "stored": self.stored.get(),
        })
    }
}
