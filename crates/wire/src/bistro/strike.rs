//! What the operator of a box tells its own node, over the local API.

use crate::mesh::Name;
use serde::{Deserialize, Serialize};
use thalweg_units::NodeId;

/// Takes submissions and keys out of a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrikeRequest {
    /// The drop box; the receiving node must be its destination.
    pub drop_box: Name,
    /// Numbers of submissions.
    pub numbers: Vec<u64>,
    /// Keys: all their submissions, and what they would submit later.
    pub keys: Vec<NodeId>,
}

/// What was taken out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrikeReply {
    /// Submissions.
    pub submissions: u64,
    /// The bytes that they had committed to.
    pub bytes: u64,
}
