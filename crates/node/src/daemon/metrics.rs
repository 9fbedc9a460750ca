//! `GET /metrics` in the OpenMetrics text format, which Prometheus reads; on loopback alone.

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, text::encode},
    metrics::gauge::ConstGauge,
    registry::Registry,
};
use std::{fmt, sync::Arc};
use thalweg_mesh::Membership;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// OpenMetrics 1.0.0.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves the registry's metrics until `stop`.
pub async fn serve(listener: TcpListener, registry: Arc<Registry>, stop: CancellationToken) {
    let router = Router::new().route("/metrics", get(page)).with_state(registry);
    // It ends only when told to, and never with an error.
    _ = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await;
}

async fn page(State(registry): State<Arc<Registry>>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

/// The roster's version and expiry, read when they are asked for.
#[derive(Debug)]
pub struct RosterMetrics(pub Membership);

impl Collector for RosterMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(roster) = self.0.current() else { return Ok(()) };
        let expiry = roster.expiry.as_unix_nanos() / 1_000_000_000;
        for (name, help, value) in [
            ("thalweg_roster_version", "Version of the roster", roster.version),
            ("thalweg_roster_expiry_timestamp_seconds", "When the roster expires", expiry),
            ("thalweg_roster_members", "Members in the roster", roster.members.len() as u64),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
