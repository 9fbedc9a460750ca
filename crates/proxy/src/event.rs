//! What a proxy tells of its work: one event for each request and each tunnel, at its end.

use serde::Serialize;
use std::net::SocketAddr;

/// What a tunnel was asked for by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `CONNECT`.
    Connect,
    /// SOCKS5.
    Socks,
    /// `Upgrade`, e.g. a WebSocket.
    Upgrade,
    /// A connection that the kernel has led here: the program does not know of the proxy.
    Redirected,
}

/// Something that ended. As JSON: one object per line, `event` names it; sizes in bytes,
/// times in seconds. No path and no query of a URL is in it: they may be secrets.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ProxyEvent {
    /// A forwarded request.
    Request {
        /// The program.
        client: SocketAddr,
        /// Its method.
        method: String,
        /// The origin, `HOST:PORT`.
        to: String,
        /// The path that carried it; of a split one the path chosen last.
        path: String,
        /// The status that the program got.
        status: u16,
        /// Bytes of the request's content.
        up_bytes: u64,
        /// Bytes of the answer's content that the program took.
        down_bytes: u64,
        /// From the request to the end of the answer.
        seconds: f64,
        /// Whether it was fetched in ranges over several paths.
        split: bool,
        /// Whether the answer came whole.
        complete: bool,
    },
    /// A tunnel.
    Tunnel {
        /// The program.
        client: SocketAddr,
        /// What asked for it.
        kind: Kind,
        /// Where it led, `HOST:PORT`.
        to: String,
        /// The path.
        path: String,
        /// Bytes from the program.
        up_bytes: u64,
        /// Bytes to the program.
        down_bytes: u64,
        /// How long it lived.
        seconds: f64,
        /// Why it ended before both sides had ended it.
        #[serde(skip_serializing_if = "Option::is_none")]
        broken: Option<String>,
    },
    /// A request or tunnel that came to nothing.
    Refused {
        /// The program.
        client: SocketAddr,
        /// Where it wanted to go; empty if that could not be read.
        to: String,
        /// Why not.
        why: String,
    },
}

/// Whoever wants to know. Called from the proxy's tasks: it must not block.
pub trait ProxySink: Send + Sync {
    /// Takes note of one event.
    fn event(&self, event: &ProxyEvent);
}

/// A sink that listens to nothing.
impl ProxySink for () {
    fn event(&self, _: &ProxyEvent) {}
}
