//! The sheet of a drop box: its deadline, and the nodes that take data for it.

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
    /// Its key, with which it signs receipts.
    pub key: NodeId,
    /// Its addresses, the best first.
    pub addresses: Vec<Destination>,
}

/// A drop box, described and signed by its destination's node, so that the receipts of the box's nodes can be verified
/// with the destination's key alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sheet {
    pub drop_box: Name,
    /// The deadline for commitments, by the destination's clock.
    pub until: WallTime,
    /// The maximum size of one submission before encryption, bytes.
    pub max_bytes: u64,
    /// The X25519 key to which submissions are encrypted by HPKE (RFC 9180).
    pub encryption_key: [u8; 32],
    /// The nodes that take data.
    pub nodes: Vec<SheetNode>,
}

impl Sheet {
    /// The maximum number of nodes of a box.
    pub const MAX_NODES: usize = 64;

    /// The node with this key.
    pub fn node(&self, key: &NodeId) -> Option<&SheetNode> {
        self.nodes.iter().find(|node| node.key == *key)
    }
}

impl Signable for Sheet {
    const DOMAIN: &'static str = "bistro sheet 2";
    /// The maximum number of nodes, with their addresses: a host name has at most 255 bytes.
    const MAX_BYTES: usize = 160 + Self::MAX_NODES * (64 + 32 + Member::MAX_ADDRESSES * 264);

    fn encode(&self, out: &mut Vec<u8>) {
        put(self, out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let sheet: Self = take(bytes, "a field of the drop box's sheet is not readable")?;
        let many = |node: &SheetNode| node.addresses.len() > Member::MAX_ADDRESSES;
        if sheet.nodes.len() > Self::MAX_NODES || sheet.nodes.iter().any(many) {
            return Err(DecodeError::Invalid("the drop box has more nodes than allowed"));
        }
        Ok(sheet)
    }
}
