//! Answers requests to the proxy itself: the PAC file, metrics, and a page that describes the proxy.

use super::{answer, body::Reply, metrics, state::ProxyState};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Response, StatusCode,
    header::{self, HeaderValue},
    http::request::Parts,
};
use std::net::SocketAddr;

/// The customary media type of a PAC file.
const PAC_TYPE: &str = "application/x-ns-proxy-autoconfig";

/// The media type of OpenMetrics 1.0.0.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers a request in origin form, for this path and query.
pub fn answer(target: &[u8], request: &Parts, shared: &ProxyState) -> Response<Reply> {
    let at = shared.own;
    if !is_for_us(request, at) {
        let why = "this is a proxy: it forwards requests whose target is an absolute URL (set \
                   http_proxy), but not requests that treat it as the origin server";
        return answer::denied(StatusCode::MISDIRECTED_REQUEST, why);
    }
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return answer::denied(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD are supported here",
        );
    }
    match target.split(|b| *b == b'?').next().unwrap_or_default() {
        b"/proxy.pac" | b"/wpad.dat" => page(pac(at), PAC_TYPE),
        b"/metrics" => page(metrics::text(&shared.registry), METRICS_TYPE),
        b"/" => answer::text(StatusCode::OK, greeting(at)),
        _ => answer::denied(
            StatusCode::NOT_FOUND,
            "not found; this proxy serves /, /proxy.pac and /metrics",
        ),
    }
}

/// Whether each `Host` is this address or `localhost`. A request with another name came here by mistake, or from a web
/// page that tries to read the answer (DNS rebinding).
fn is_for_us(request: &Parts, at: SocketAddr) -> bool {
    let own = [at.to_string(), format!("localhost:{}", at.port())];
    let is_own = |host: &HeaderValue| {
        own.iter().any(|own| host.as_bytes().eq_ignore_ascii_case(own.as_bytes()))
    };
    // Clients of HTTP/1.0 send no `Host`.
    request.headers.get_all(header::HOST).iter().all(is_own)
}

fn page(text: String, kind: &'static str) -> Response<Reply> {
    let mut response = Response::new(Reply::Own(Full::new(Bytes::from(text))));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn greeting(at: SocketAddr) -> String {
    format!(
        "thalweg proxy {}\nHTTP and SOCKS5 at {at}\nPAC file: http://{at}/proxy.pac\nmetrics: http://{at}/metrics",
        env!("CARGO_PKG_VERSION")
    )
}

/// The PAC file: names without a dot and this host are reached directly, everything else by the proxy. If the proxy
/// does not answer, browsers connect directly.
fn pac(at: SocketAddr) -> String {
    format!(
        "function FindProxyForURL(url, host) {{\n  \
           if (isPlainHostName(host) || shExpMatch(host, \"*.localhost\") ||\n      \
             shExpMatch(host, \"127.*\") || host === \"[::1]\" || host === \"::1\") {{\n    \
             return \"DIRECT\";\n  }}\n  \
           return \"PROXY {at}; SOCKS5 {at}; DIRECT\";\n}}\n"
    )
}
