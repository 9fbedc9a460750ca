//! Why something is not taken.

use super::show_date;
use crate::mesh::Name;
use serde::{Deserialize, Serialize};
use thalweg_units::WallTime;
use thiserror::Error;

/// What a node says instead of what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    /// There is no such box there.
    #[error("there is no drop box `{0}` at this node")]
    NoBox(Name),
    /// The box is there, and the node is not its destination.
    #[error("this node only takes data for `{drop_box}`; commitments go to `{destination}`")]
    NotDestination {
        /// The box.
        drop_box: Name,
        /// Who takes commitments.
        destination: Name,
    },
    /// The box's settings do not let this key.
    #[error("the drop box does not take submissions of this key")]
    NotAdmitted,
    /// The deadline is over.
    #[error("too late: it is {} by the destination's clock, and the deadline was {}",
        show_date(*now), show_date(*until))]
    Late {
        /// The destination's clock when the commitment came.
        now: WallTime,
        /// The deadline.
        until: WallTime,
    },
    /// More bytes than a submission may have.
    #[error("{size} bytes are more than the {max} that a submission may have")]
    TooLarge {
        /// Bytes.
        size: u64,
        /// The most.
        max: u64,
    },
    /// This key has as many as it may have.
    #[error("this key has the {0} submissions that it may have")]
    TooMany(u64),
    /// The box has all that it takes.
    #[error("the drop box is full")]
    Full,
    /// Too many requests in a short time.
    #[error("too many requests from this address; again in {} ms", .0)]
    Slower(u32),
    /// The stamp is another key's.
    #[error("the stamp is another key's: whoever committed must bring the data")]
    NotYours,
    /// A signature or a field is wrong.
    #[error("{0}")]
    Forged(String),
    /// The data has another size than was committed to.
    #[error("the data has {came} bytes, and {stamped} were committed to")]
    Size {
        /// What was committed to.
        stamped: u64,
        /// What the client has.
        came: u64,
    },
    /// Data and nonce do not give the hash that was committed to.
    #[error("the data does not match its commitment: it or the nonce is another one")]
    Mismatch,
    /// What an earlier try has left here was damaged and is thrown away; from the beginning it may work.
    #[error("what was here of the data was damaged; push it from the beginning")]
    Again,
    /// No room.
    #[error("this node has no room for {0} bytes")]
    NoRoom(u64),
    /// The same data is on its way already, or too many are.
    #[error("this node is receiving as much as it may, or the same data; try again or elsewhere")]
    Busy,
    /// The node cannot write, or what it needs is not there.
    #[error("this node cannot: {0}")]
    Unable(String),
    /// This key's submissions would have more bytes together than its share.
    #[error("this key's submissions would have more than its share of {0} bytes together")]
    TooMuch(u64),
}

impl Refusal {
    /// Whether another node, or the same one later, may say otherwise.
    pub const fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Slower(_) | Self::Again | Self::NoRoom(_) | Self::Busy | Self::Unable(_)
        )
    }
}
