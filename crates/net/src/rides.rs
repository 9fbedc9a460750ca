//! Where members are in the network whose packets ride in probe trains.

use std::{fmt, io, net::SocketAddr};
use thalweg_units::NodeId;

/// Knows the addresses of members' ports in the carrier's network, and when legs that name nothing go there.
///
/// A [`Dialer`](crate::Dialer) asks it for the first leg of what is bound to no interface.
pub trait Rides: fmt::Debug + Send + Sync {
    /// Where the port of the node with this key is.
    ///
    /// # Errors
    /// Nothing rides from this host, and what it lacks.
    fn at(&self, node: NodeId) -> io::Result<SocketAddr>;

    /// Whether a leg to it that may go any way is to ride now. Answers at once.
    fn chooses(&self, _node: NodeId) -> bool {
        false
    }
}
