//! What a destination says of its box: until when, and which nodes take data.

use super::{put, take};
use crate::{
    DecodeError, Destination, Signable,
    mesh::{Member, Name},
};
use serde::{Deserialize, Serialize};
use thalweg_units::{NodeId, WallTime};

/// A node that takes data for a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SheetNode {
    /// Its name in the mesh.
    pub name: Name,
    /// Its key, which signs receipts.
    pub key: NodeId,
    /// Where it is reached, the best first.
    pub addresses: Vec<Destination>,
}

/// A drop box as its destination describes it; signed with the key of the destination's node,
/// so that receipts of its nodes can be checked by whoever knows that key alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sheet {
    /// The box.
    pub drop_box: Name,
    /// Commitments are taken before this date, by the destination's clock.
    pub until: WallTime,
    /// The most bytes of one submission, before it is encrypted.
    pub max_bytes: u64,
    /// The X25519 key that submissions are encrypted to, by HPKE (RFC 9180).
    pub encryption_key: [u8; 32],
    /// Who takes data.
    pub nodes: Vec<SheetNode>,
}

impl Sheet {
    /// The most nodes of a box.
    pub const MAX_NODES: usize = 64;

    /// The node with this key.
    pub fn node(&self, key: &NodeId) -> Option<&SheetNode> {
        self.nodes.iter().find(|node| node.key == *key)
    }
}

impl Signable for Sheet {
    const DOMAIN: &'static str = "bistro sheet 2";
    /// So many nodes with their addresses: a name of a host has 255 bytes at most.
    const MAX_BYTES: usize = 160 + Self::MAX_NODES * (64 + 32 + Member::MAX_ADDRESSES * 264);

    fn encode(&self, out: &mut Vec<u8>) {
        put(self, out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let sheet: Self = take(bytes, "a field of the drop box's sheet is not readable")?;
        let many = |node: &SheetNode| node.addresses.len() > Member::MAX_ADDRESSES;
        if sheet.nodes.len() > Self::MAX_NODES || sheet.nodes.iter().any(many) {
            return Err(DecodeError::Invalid("the drop box has more nodes than it can have"));
        }
        Ok(sheet)
    }
}
