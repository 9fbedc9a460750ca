//! This host's part in a mesh: its keys, the roster it believes, and how it keeps both.

mod membership;

pub use membership::{Membership, MeshPeer, Offered, RosterError};
