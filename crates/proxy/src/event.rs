//! Events of a proxy: one for each request and each tunnel, at its end.

use serde::Serialize;
use std::net::SocketAddr;

/// How a tunnel was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TunnelKind {
    Connect,
    /// SOCKS5.
    Socks,
    /// `Upgrade`, e.g. a WebSocket.
    Upgrade,
    /// A connection that was redirected here: the program does not know of the proxy.
    Redirected,
}

/// The end of a request or tunnel, or a refusal. As JSON: one object per line, whose `event` names the variant; sizes
/// in bytes, times in seconds. `path` is the network path. The path and query of the URL are left out, because they may
/// be secrets.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ProxyEvent {
    Request {
        /// The program's address.
        client: SocketAddr,
        method: String,
        /// The origin, `HOST:PORT`.
        to: String,
        /// The path that carried it; of a split request, the path that was chosen last.
        path: String,
        /// The status that the program got.
        status: u16,
        /// Bytes of the request's content.
        up_bytes: u64,
        /// Bytes of the answer's content that the program took.
        down_bytes: u64,
        /// Time from the request to the end of the answer.
        seconds: f64,
        /// Whether it was fetched in ranges over several paths.
        split: bool,
        /// Whether the answer is complete.
        complete: bool,
    },
    Tunnel {
        /// The program's address.
        client: SocketAddr,
        /// How it was requested.
        kind: TunnelKind,
        /// The destination, `HOST:PORT`.
        to: String,
        path: String,
        /// Bytes from the program.
        up_bytes: u64,
        /// Bytes to the program.
        down_bytes: u64,
        /// How long it lasted.
        seconds: f64,
        /// Why it ended before both sides had ended it.
        #[serde(skip_serializing_if = "Option::is_none")]
        broken: Option<String>,
    },
    /// A request or tunnel that failed.
    Refused {
        /// The program's address.
        client: SocketAddr,
        /// The destination; empty if it could not be parsed.
        to: String,
        why: String,
    },
}

/// A receiver of events. It is called from the proxy's tasks, so it must not block.
pub trait ProxySink: Send + Sync {
    fn event(&self, event: &ProxyEvent);
}

/// A sink that ignores all events.
impl ProxySink for () {
    fn event(&self, _: &ProxyEvent) {}
}
