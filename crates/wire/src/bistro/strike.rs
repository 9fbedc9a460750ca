//! Requests of a box's operator to the destination's node over the local API.

use crate::mesh::Name;
use serde::{Deserialize, Serialize};
use thalweg_units::NodeId;

/// A request to strike submissions and keys from a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrikeRequest {
    /// The box; the node must be its destination.
    pub drop_box: Name,
    /// Numbers of submissions to strike.
    pub numbers: Vec<u64>,
    /// Keys to strike: all their submissions, and any later ones.
    pub keys: Vec<NodeId>,
}

/// The reply to a [`StrikeRequest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrikeReply {
    /// The number of submissions struck.
    pub submissions: u64,
    /// The bytes that these submissions committed to.
    pub bytes: u64,
}
