//! The local API: HTTP/1.1 and JSON on a unix socket that the node's owner alone can open.
//!
//! | Request | Reply |
//! |---|---|
//! | `GET /v1/status` | [`super::NodeStatus`] |
//! | `GET /v1/roster` | the roster, as JSON |
//! | `GET /v1/drop-boxes` | counters and settings of drop boxes; null if there are none |
//! | `POST /v1/drop-boxes/strike` | [`StrikeReply`]: the number of struck submissions, and their bytes |
//! | `GET /v1/carrier` | [`thalweg_probe::carrier::CarrierReport`]; null if nothing is carried |
//! | `GET /v1/oracle` | the oracle's [`StatusReply`] |
//! | `POST /v1/tokens`, `POST /v1/revoke` | as at the oracle, asked in this node's name |
//!
//! Errors: [`ApiError`] with status 4xx or 5xx.

use super::status::StatusSources;
use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::Listener,
};
use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};
use thalweg_base::peer_source::is_owner;
use thalweg_wire::bistro::{StrikeReply, StrikeRequest};
use thalweg_wire::mesh::{ApiError, RevokeRequest, Roster, StatusReply, TokenRequest};
use tokio::{
    net::{UnixListener, UnixStream, unix::SocketAddr},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

/// The longest request: a token request with all tags is below 4 kB.
const MAX_BODY: usize = 64 * 1024;

/// Binds the socket, mode 0600, in place of one that a daemon left behind.
///
/// The caller must hold the state directory's lock; otherwise the socket of a running daemon would be taken away. Only
/// its owner can enter the directory (0700), so that nobody connects before the mode is set.
///
/// # Errors
/// The system's.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until `stop`; requests in progress are finished.
pub async fn serve(listener: UnixListener, subject: StatusSources, stop: CancellationToken) {
    let router = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/roster", get(roster))
        .route("/v1/oracle", get(oracle))
        .route("/v1/drop-boxes", get(drop_boxes))
        .route("/v1/drop-boxes/strike", post(strike))
        .route("/v1/carrier", get(carrier))
        .route("/v1/tokens", post(token))
        .route("/v1/revoke", post(revoke))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Arc::new(subject));
    let serving = axum::serve(OwnerListener(listener), router);
    // Serving ends only when told to, and never with an error.
    _ = serving.with_graceful_shutdown(stop.cancelled_owned()).await;
}

/// Admits the user that this process runs as, and root; others are closed without a byte.
struct OwnerListener(UnixListener);

impl Listener for OwnerListener {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        let me = rustix::process::geteuid().as_raw();
        loop {
            match self.0.accept().await {
                Ok((stream, from)) if is_owner(&stream, me) => return (stream, from),
                Ok(_) => {}
                // As for TCP: without descriptors, wait for some.
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// An [`ApiError`] as a response.
struct ApiRefusal(ApiError);

impl IntoResponse for ApiRefusal {
    fn into_response(self) -> Response {
        let status = match self.0.code.as_str() {
            code if code.starts_with("oracle_") => StatusCode::BAD_GATEWAY,
            _ => StatusCode::BAD_REQUEST,
        };
        (status, Json(self.0)).into_response()
    }
}

async fn status(State(subject): State<Arc<StatusSources>>) -> Response {
    Json(subject.status().await).into_response()
}

async fn roster(State(subject): State<Arc<StatusSources>>) -> Result<Json<Roster>, ApiRefusal> {
    let none = || {
        let message = "this node has no roster yet; `thalweg status` shows whether it reaches its \
                       oracle"
            .to_owned();
        ApiRefusal(ApiError { code: "no_roster".to_owned(), message })
    };
    subject.membership.current().map(|roster| Json((*roster).clone())).ok_or_else(none)
}

async fn drop_boxes(State(subject): State<Arc<StatusSources>>) -> Json<serde_json::Value> {
    Json(subject.submit.as_ref().map(|submit| submit.report()).unwrap_or_default())
}

async fn strike(
    State(subject): State<Arc<StatusSources>>,
    Json(request): Json<StrikeRequest>,
) -> Result<Json<StrikeReply>, ApiRefusal> {
    let none = || {
        let message = "this node has no drop box".to_owned();
        ApiRefusal(ApiError { code: "no_drop_box".to_owned(), message })
    };
    let submit = subject.submit.as_ref().ok_or_else(none)?;
    submit.strike(request).await.map(Json).map_err(ApiRefusal)
}

async fn carrier(State(subject): State<Arc<StatusSources>>) -> Json<serde_json::Value> {
    Json(subject.carrier())
}

async fn oracle(
    State(subject): State<Arc<StatusSources>>,
) -> Result<Json<StatusReply>, ApiRefusal> {
    subject.control.status().await.map(Json).map_err(ApiRefusal)
}

async fn token(
    State(subject): State<Arc<StatusSources>>,
    Json(request): Json<TokenRequest>,
) -> Result<Response, ApiRefusal> {
    let reply = subject.control.token(request).await.map_err(ApiRefusal)?;
    Ok(Json(reply).into_response())
}

async fn revoke(
    State(subject): State<Arc<StatusSources>>,
    Json(request): Json<RevokeRequest>,
) -> Result<Response, ApiRefusal> {
    let reply = subject.control.revoke(request).await.map_err(ApiRefusal)?;
    Ok(Json(reply).into_response())
}
