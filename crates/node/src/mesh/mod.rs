//! This host's part in a mesh: its keys, the roster it believes, and how it keeps both.

mod clock;
mod durable;
mod membership;
mod peer;
mod roster_error;
mod routes;
mod state;

pub use clock::WallClock;
pub use membership::{Damage, Membership, Offered};
pub use peer::MeshPeer;
pub use roster_error::RosterError;
pub use routes::{Names, RouteNameError};
pub use state::{MeshFile, Oracle, State, StateError, StateLock};
