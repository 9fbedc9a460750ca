//! An HTTP and SOCKS5 proxy for the programs of this host, over the best known paths.
//!
//! It accepts connections of programs, and carries them as tunnels, forwarded requests or split downloads. It reports
//! what it observes of each path, so that later connections choose better.
//!
//! ```text
//! redirected by the kernel or a supervisor ─ transparent ─┐
//! accept ─ first byte 5? ─ yes ─ socks ───────────────────┤
//!             │ no                                        ├─ dial: race of paths ─ tunnel (pump)
//!             └─ http ─┬─ CONNECT, upgrade ───────────────┘
//!                      ├─ absolute form ── forward ── pool of origin connections
//!                      │                      └─ large, ranges, strong tag ── split (`thalweg_get`)
//!                      └─ origin form ── proxy_pages: `/proxy.pac`, `/metrics`
//! ```
//!
//! - It is a correct proxy first (RFC 9110, RFC 9112): a request that works directly also works through it, and no byte
//!   differs from those that the origin sent. The one exception is a foreign name that resolves to this host or its
//!   local network, which `rebinding` refuses.
//! - hyper parses and frames HTTP, except for the targets of requests, which pass unchanged (`request_scanner`,
//!   `request_line`); `fields` handles the hop-by-hop fields.
//! - A `PathChooser` chooses the paths of each connection; `HistoryChooser` is the one that uses the results of earlier
//!   transfers.
//! - Connections, idle connections and split downloads are bounded; a slow reader slows its sender.
//!
//! Terms:
//!
//! - *program*: a client of the proxy on this host.
//! - *origin*: the server that a request is for; *origin connection*: a connection to it on which HTTP is spoken (local
//!   variables call it `link`).
//! - *path*: direct, or through relays; *detour*: a path through relays. *Attempt* (local variables: `way`): a path
//!   and, for the direct path, an interface, as dialled in a race.
//! - *relay*: a member of the mesh that forwards bytes; *leg*: the connection between two consecutive hosts of a path.
//! - *interface*: a network interface of this host, such as Wi-Fi or LTE; *lane*: an interface that a connection is
//!   assigned to; *tier*: a rank of interfaces, of which a lower one is used only if those above fail; *bond*: several
//!   interfaces over which one connection is striped.
//! - *passage*: the account of one assigned connection. It takes the connection's byte counts, and enforces caps (bytes)
//!   and limits (bytes/s).
//! - *answer*: an HTTP response; an *interim* one has a 1xx status. `Reply` is the content of an answer to a program.
//! - *rest*: the missing bytes of an answer whose connection has broken or stalled.
//! - *split*: fetched in byte ranges over several paths.

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
