//! `GET /metrics` in the OpenMetrics text format, which Prometheus reads; only on loopback.

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, text::encode},
    metrics::gauge::ConstGauge,
    registry::Registry,
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_base::fair_slots::{Bounds, FairSlots, Slot};
use thalweg_mesh::Membership;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// OpenMetrics 1.0.0.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The most simultaneous connections: enough for some scrapers and people. Any user of this host can open more.
const CONNECTIONS: usize = 16;

/// A connection older than this is closed if a new one needs its place.
const GRACE: Duration = Duration::from_secs(1);

/// The time limit for a request's head.
const HEAD_TIME: Duration = Duration::from_secs(5);

/// The time limit for a request and its response; a response has some hundred kB.
const LONGEST: Duration = Duration::from_secs(10);

/// The pause after a failed accept, as at the mesh port.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the registry's metrics until `stop`, one request for each connection.
pub async fn serve(listener: TcpListener, registry: Arc<Registry>, stop: CancellationToken) {
    let router = Router::new().route("/metrics", get(page)).with_state(registry);
    let bounds = Bounds { all: CONNECTIONS, each: CONNECTIONS, grace: Some(GRACE) };
    let (places, mut tasks) = (FairSlots::new(bounds), JoinSet::new());
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((tcp, _)) => {
                // A connection without a place is closed.
                if let Some(place) = places.enter((), 1, Instant::now()) {
                    tasks.spawn(answer(tcp, router.clone(), place));
                }
            }
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
    while tasks.join_next().await.is_some() {}
}

async fn answer(tcp: TcpStream, router: Router, place: Slot<()>) {
    let service = TowerToHyperService::new(router);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).keep_alive(false);
    let serving = http.serve_connection(TokioIo::new(tcp), service);
    // Errors need no report: the client sees that the connection ends.
    tokio::select! {
        _ = timeout(LONGEST, serving) => {}
        () = place.evicted() => {}
    }
}

async fn page(State(registry): State<Arc<Registry>>) -> Response {
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(e) => (StatusCode::INTERNAL_SERVER_ERROR, e.to_string()).into_response(),
    }
}

/// The roster's version and expiry, read when metrics are collected.
#[derive(Debug)]
pub struct RosterMetrics(pub Membership);

impl Collector for RosterMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(roster) = self.0.current() else { return Ok(()) };
        let expiry = roster.expiry.as_unix_nanos() / 1_000_000_000;
        for (name, help, value) in [
            ("thalweg_roster_version", "Version of the roster.", roster.version),
            (
                "thalweg_roster_expiry_timestamp_seconds",
                "Time at which the roster expires, since the Unix epoch.",
                expiry,
            ),
            ("thalweg_roster_members", "Members in the roster.", roster.members.len() as u64),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        Ok(())
    }
}
