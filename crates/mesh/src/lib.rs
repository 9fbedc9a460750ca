//! A host's part in a mesh: its keys, the roster that it trusts, and channels to other members.
//!
//! Inputs are tokens, signed rosters and names of members; outputs are the members' rights and authenticated channels.
//!
//! ```text
//! token  ─► join             ─► State       keys and the mesh's key, on disk
//! oracle ─► OracleClient     ─► RosterSync  ─► Membership: the newest valid roster
//! a name ─► MemberDialer     ─► Route       ─► an authenticated channel to that member
//! relays ◄─ reach            a member that cannot be dialled stands there, and opens connections on request
//! door   ─► MeshPeer         ─► service::MemberService, until the member is revoked
//! ```

mod expiry_timer;
mod join;
mod membership;
mod oracle_client;
mod peer;
mod roster_error;
mod roster_writer;
mod routes;
mod state;
mod sync;

pub mod carrier_network;
pub mod member_dialer;
pub mod reach;
pub mod service;

pub use join::{JoinError, JoinOptions, JoinResult, join, member_name};
pub use membership::{Membership, OfferOutcome, RosterFork};
pub use oracle_client::{Attempt, ClockSkew, OracleClient, OracleError};
pub use peer::{MeshPeer, Revoked};
pub use roster_error::RosterError;
pub use roster_writer::{RosterDamage, RosterWriter};
pub use routes::{BOND, MAX_BOND_ROUTES, MemberReach, Names, RIDE, RouteNameError, routes_in};
pub use state::{MeshFile, Oracle, State, StateError, StateLock};
pub use sync::{Reporter, RosterSync, SyncEvent};
