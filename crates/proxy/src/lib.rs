//! An HTTP and SOCKS5 proxy for the programs of this host, over the best known paths.
//!
//! The inputs are connections of programs. The outputs are tunnels, forwarded requests and split downloads, and
//! observations of each path.
//!
//! ```text
//! redirected by the kernel ─ transparent ──────────────┐
//! accept ─ first byte 5? ─ yes ─ socks ───────────────┐
//!             │ no                                     ├─ dial: race of ways ─ tunnel (pump)
//!             └─ http ── CONNECT, upgrade ────────────┘
//!                  ├─ absolute form ── forward ── pool of links to origins
//!                  │                      └─ large, ranges, strong tag ── split (`get`)
//!                  └─ origin form ── own pages: `/proxy.pac`
//! ```
//!
//! - It is a correct proxy first (RFC 9110, RFC 9112): a request that works directly also works through it, and no byte
//!   differs from those that the origin sent.
//! - hyper parses and frames HTTP, except for the targets of requests, which pass unchanged (`request_scanner`,
//!   `request_line`); `fields` handles the hop-by-hop fields.
//! - A `PathChooser` chooses the path of each connection; `HistoryChooser` is the one that uses the results of earlier
//!   transfers.
//! - Connections, idle links and split streams are bounded; a slow reader slows its sender.

mod answer;
mod answer_rest;
mod assignment;
mod body;
mod client_io;
mod connect;
mod counted_stream;
mod dial;
mod event;
mod fields;
mod forward;
mod http;
mod linger;
mod metrics;
mod pool;
mod proxy_pages;
mod rebinding;
mod record;
mod request_line;
mod request_scanner;
mod review;
mod server;
mod silence;
mod socks;
mod split;
mod state;
mod target;
mod transparent;
mod tunnel;
mod tunnel_rate;
mod upstream;

pub use event::{ProxyEvent, ProxySink, TunnelKind};
pub use review::Reviewer;
pub use server::{HostInterfaces, Proxy, ProxyConfig, ProxyError, RedirectSource, Summary};
pub use transparent::{MARK, RedirectDestinations, RedirectPorts};
