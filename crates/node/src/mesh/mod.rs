//! This host's part in a mesh: its keys, the roster it believes, and how it keeps both.

mod clock;
pub(crate) mod durable;
mod guard;
mod join;
mod kept;
mod membership;
mod oracle_client;
mod peer;
mod roster_error;
mod routes;
mod state;
mod sync;

pub use clock::WallClock;
pub use join::{JoinError, Joined, Wish, join, member_name};
pub use kept::{Damage, Keeper};
pub use membership::{Membership, Offered};
pub use oracle_client::{Attempt, ClockSkew, OracleClient, OracleError};
pub use peer::{MeshPeer, Revoked};
pub use roster_error::RosterError;
pub use routes::{BOND, MAX_BOND_ROUTES, Names, RIDE, RouteNameError, routes_in};
pub use state::{MeshFile, Oracle, State, StateError, StateLock};
pub use sync::{Reporter, RosterSync, SyncEvent};
