//! The HTTP server of an HLS output, with a player page that needs nothing else.

use super::{Window, viewers::Viewers};
use axum::{
    Json, Router,
    body::Body,
    extract::{Path, Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::{Next, from_fn, map_response},
    response::{IntoResponse, Response},
    routing::get,
};
use std::{net::IpAddr, time::Duration};
use tokio::{net::TcpListener, time::sleep};
use tokio_util::sync::CancellationToken;

/// Nothing but the page's own files, so that the page works offline and a stream's name cannot run a script.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Media types (RFC 8216, section 4; RFC 6381).
const PLAYLIST: &str = "application/vnd.apple.mpegurl";
const SEGMENT: &str = "video/mp4";

/// The time for unfinished responses when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves the window until the token is cancelled.
pub async fn serve(listener: TcpListener, window: Window, stop: CancellationToken) {
    let router = Router::new()
        .route("/", get(|| async { page("text/html; charset=utf-8", PAGE) }))
        .route("/player.css", get(|| async { page("text/css; charset=utf-8", STYLE) }))
        .route("/player.js", get(|| async { page("text/javascript; charset=utf-8", SCRIPT) }))
        .route(
            "/status.json",
            get(|State(window): State<Window>| async move { Json(window.status()) }),
        )
        .route(
            "/stream.m3u8",
            get(|State(window): State<Window>| async move { playlist(window.playlist()) }),
        )
        .route(
            "/master.m3u8",
            get(|State(window): State<Window>| async move { playlist(window.master()) }),
        )
        .route("/{file}", get(segment))
        .with_state(window)
        .layer(map_response(add_security_headers))
        .layer(from_fn(check_host));
    let serving = axum::serve(Viewers::new(listener), router);
    let end = async {
        stop.cancelled().await;
        sleep(STOP_TIMEOUT).await;
    };
    let serving = serving.with_graceful_shutdown(stop.clone().cancelled_owned());
    tokio::select! {
        _ = serving => {}
        // Do not wait for viewers that have sent half a request.
        () = end => {}
    }
}

const PAGE: &str = include_str!("player/index.html");
const STYLE: &str = include_str!("player/player.css");
const SCRIPT: &str = include_str!("player/player.js");

fn page(kind: &'static str, text: &'static str) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, kind)], text)
}

fn playlist(text: Option<String>) -> Response {
    match text {
        Some(text) => ([(header::CONTENT_TYPE, PLAYLIST)], text).into_response(),
        None => {
            let wait = [(header::RETRY_AFTER, "1")];
            (StatusCode::SERVICE_UNAVAILABLE, wait, "the first segment is not complete yet\n")
                .into_response()
        }
    }
}

async fn segment(State(window): State<Window>, Path(file): Path<String>) -> Response {
    let number = |prefix: &str, suffix: &str| {
        file.strip_prefix(prefix)?.strip_suffix(suffix)?.parse::<u64>().ok()
    };
    let media = number("segment-", ".m4s").and_then(|number| window.segment(number));
    let found = media.or_else(|| window.init(number("init-", ".mp4")?));
    match found {
        Some(bytes) => ([(header::CONTENT_TYPE, SEGMENT)], Body::from(bytes)).into_response(),
        None => (StatusCode::NOT_FOUND, "no such file; old segments are removed\n").into_response(),
    }
}

/// Adds the headers that all responses have.
async fn add_security_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Refuses requests for other hosts' names, so that a web page whose name resolves to this host cannot read the stream.
async fn check_host(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(is_own_host) {
        return next.run(request).await;
    }
    (StatusCode::MISDIRECTED_REQUEST, "use this host's address, such as http://127.0.0.1\n")
        .into_response()
}

/// Whether the host, with or without a port, is an address or `localhost`.
fn is_own_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_own_hosts() {
        for host in
            ["127.0.0.1", "127.0.0.1:8090", "[::1]:8090", "[::1]", "localhost:1", "LocalHost"]
        {
            assert!(is_own_host(host), "{host}");
        }
        for host in ["example.org", "127.0.0.1.example.org:80", "[::1", "", "localhost.example.org"]
        {
            assert_eq!(is_own_host(host), host == "[::1", "{host}");
        }
    }
}
