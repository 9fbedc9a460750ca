//! Reasons for refusing a request.

use super::show_date;
use crate::mesh::Name;
use serde::{Deserialize, Serialize};
use thalweg_units::WallTime;
use thiserror::Error;

/// Why a node refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The node does not know the box.
    #[error("there is no drop box `{0}` at this node")]
    NoBox(Name),
    /// The node takes data for the box but is not its destination.
    #[error("this node only receives data for `{drop_box}`; commitments go to `{destination}`")]
    NotDestination {
        drop_box: Name,
        /// The node that takes commitments.
        destination: Name,
    },
    /// The box's settings do not admit this key.
    #[error("the drop box does not accept submissions from this key")]
    NotAdmitted,
    /// The deadline has passed.
    #[error("too late: it is {} by the destination's clock, and the deadline was {}",
        show_date(*now), show_date(*until))]
    Late {
        /// The destination's clock when the commitment arrived.
        now: WallTime,
        until: WallTime,
    },
    /// The data is larger than a submission may be.
    #[error("the data has {size} bytes, more than the {max} that a submission may have")]
    TooLarge {
        /// The size of the data, bytes.
        size: u64,
        /// The maximum, bytes.
        max: u64,
    },
    /// This key has made the maximum number of submissions.
    #[error("this key has already made the {0} submissions that it may make")]
    TooMany(u64),
    /// The box is full.
    #[error("the drop box is full")]
    Full,
    /// There are too many requests from this address; contains the time to wait, ms.
    #[error("too many requests from this address; try again in {} ms", .0)]
    Slower(u32),
    /// The stamp belongs to another key.
    #[error(
        "the stamp belongs to another key: the key that made the commitment must send the data"
    )]
    NotYours,
    /// A signature or a field is invalid.
    #[error("{0}")]
    Forged(String),
    /// The size of the data differs from the commitment.
    #[error("the data has {came} bytes, but its commitment is for {stamped} bytes")]
    Size {
        /// The size in the commitment, bytes.
        stamped: u64,
        /// The size of the client's data, bytes.
        came: u64,
    },
    /// Data and nonce do not match the hash of the commitment.
    #[error("the data does not match its commitment: it has changed, or the nonce is wrong")]
    Mismatch,
    /// The data that an earlier attempt left here was damaged and has been discarded; an attempt from the beginning may
    /// succeed.
    #[error(
        "the part of the data that this node had was damaged; send the data again from the \
         beginning"
    )]
    Again,
    /// The node has no room; contains the bytes needed.
    #[error("this node has no room for {0} bytes")]
    NoRoom(u64),
    /// The node is receiving the same data already, or the maximum number of submissions.
    #[error(
        "this node is already receiving this data, or its maximum number of submissions; try \
         again, or use another node"
    )]
    Busy,
    /// The node cannot write, or a resource is missing; contains the reason.
    #[error("this node failed: {0}")]
    Unable(String),
    /// This key's submissions would exceed its share; contains the share in bytes.
    #[error("with this submission, the key would exceed its share of {0} bytes")]
    TooMuch(u64),
}

impl Refusal {
    /// Whether another node, or the same node later, may accept the request.
    pub const fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Slower(_) | Self::Again | Self::NoRoom(_) | Self::Busy | Self::Unable(_)
        )
    }
}
