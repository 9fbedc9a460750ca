//! Errors at the start of a daemon.

use std::{io, net::SocketAddr, path::PathBuf};
use thalweg_relay::BindError;
use thiserror::Error;

/// Why a daemon cannot start.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// It cannot listen at one of its addresses.
    #[error("cannot listen on {address} ({what}): {source}")]
    Listen {
        /// What it is for, e.g. `[node] listen`.
        what: &'static str,
        /// The address asked for.
        address: SocketAddr,
        source: io::Error,
    },
    /// A listener for this host's own programs would be reachable from others.
    #[error(
        "{what}: {address} is reachable from other hosts, but only this host may connect; use a \
         loopback address, e.g. 127.0.0.1"
    )]
    NotLoopback {
        /// The listener that was configured.
        what: &'static str,
        /// The address asked for.
        address: SocketAddr,
    },
    /// It cannot listen at the local API's socket.
    #[error("cannot listen on {socket}: {source}")]
    Socket { socket: PathBuf, source: io::Error },
    /// TLS does not accept the node's key.
    #[error("TLS does not accept this node's key: {0}")]
    Key(#[source] io::Error),
    /// The relay for local programs, without a route, cannot be bound.
    #[error(transparent)]
    Relay(#[from] BindError),
}
