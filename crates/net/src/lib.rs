//! Linux I/O: identities, dialing, channels, sockets and the pump.
//!
//! The input is addresses, names and routes; the output is streams, datagrams with times, and counters.
//!
//! ```text
//! Route (relays, interface) ─► Dialer: resolve ─► connect ─► SOCKS5 or channel of each hop ─► Stream
//! identity ─► tls, channel  ─► an authenticated channel to a member
//! Stream, Stream ─► pump: splice, liveness ─► both directions copied ─► legs: rates that were seen
//! socket         ─► probe: datagrams with the kernel's times        ─► trains
//! netlink        ─► interfaces: addresses, routes, and their changes
//! ```
//!
//! A [`Route`] names the relays and the interface of a connection; [`Dialer::dial`] opens it and returns a [`Stream`].
//! All crates that move bytes between hosts use these streams, so that deadlines, socket options and error messages are
//! the same everywhere.

mod accounting;
mod background;
mod carrier;
mod closed_on_drop;
mod dial;
mod hpke;
mod identity;
mod interfaces;
mod netlink;
mod peer;
mod resolve;
mod ride_network;
mod route;
mod sock_diag;
mod stream;
mod sys;
mod tcp_info;
mod transport;
mod tun;

pub mod channel;
pub mod legs;
pub mod liveness;
pub mod memory;
pub mod probe;
pub mod pump;
pub mod socks5;
pub mod splice;
pub mod tcp;
pub mod tls;

pub use accounting::{Account, AccountEntry, Bookkeeper, ByteDirection};
pub use background::{Reading, YieldingWindow};
pub use carrier::{CarriedStream, Carrier, EgressChoice, OpeningStream};
pub use closed_on_drop::ClosedOnDrop;
pub use dial::{
    Cause, DialError, DialOptions, Dialer, MAX_ADDRESSES, SocketOptions, Step, connect,
    connect_by_terms, cut_over,
};
pub use hpke::{DecryptionKey, HPKE_TAG, encrypt_to};
pub use identity::{Ed25519, KeyError, PrivateKey};
pub use interfaces::{
    Changes, Interface, InterfaceWish, RouteAnswer, Survey, UnusableReason, interface_for,
    interfaces, internet_interface, internet_interfaces, leads, own_addresses, source_for, survey,
};
pub use peer::Peer;
pub use resolve::{NameSources, resolve};
pub use ride_network::RideNetwork;
pub use route::{Hop, MAX_HOPS, Medium, RelayProtocol, Route, RouteError};
pub use sock_diag::{socket_inode, socket_user};
pub use stream::{Monitor, Stream};
pub use sys::retransmits_within;
pub use tcp_info::TcpInfo;
pub use thalweg_wire::{Destination, Host};
pub use tls::{TlsClient, TlsError, TlsOptions};
pub use tun::{Tun, TunError, TunSettings};
