//! Stamps, the replies of step 1: the destination confirms a client's commitment and its time.

use super::{Commitment, Label, put, take};
use crate::{DecodeError, Signable, Signed, mesh::Name};
use serde::{Deserialize, Serialize};
use std::fmt;
use thalweg_units::{NodeId, WallTime};

/// A commitment as the destination recorded it. Signed with the key of the destination's node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    pub drop_box: Name,
    /// The number of the commitment in the box, from 1; numbers may be missing.
    pub number: u64,
    /// The client's key, proven on the channel.
    pub client: NodeId,
    /// The client's name for the data.
    pub label: Label,
    /// The data's size and hidden hash.
    pub commitment: Commitment,
    /// The time, by the destination's clock; later than those of all earlier stamps.
    pub time: WallTime,
    /// The box's deadline at that time; after `time`.
    pub until: WallTime,
}

/// Identifies a stamp: the hash of its signed encoding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StampId(pub [u8; 32]);

impl StampId {
    /// The id of a stamp.
    pub fn from_stamp(stamp: &Signed<Stamp>) -> Self {
        Self::from_encoded(&stamp.encode())
    }

    /// The id of a stamp encoded by [`Signed::encode`].
    pub fn from_encoded(signed: &[u8]) -> Self {
        Self(blake3::derive_key("thalweg 2026 bistro stamp id 1", signed))
    }

    /// The id in 64 hexadecimal digits.
    pub fn text(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.0)
    }

    /// Parses the id from hexadecimal digits.
    pub fn from_text(text: &str) -> Option<Self> {
        super::commitment::hex32(text).map(Self)
    }
}

impl fmt::Debug for StampId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", &self.text()[..8])
    }
}

impl Signable for Stamp {
    const DOMAIN: &'static str = "bistro stamp 1";
    /// At most two texts of 64 and 202 bytes, two blocks of 32, and four numbers of ten.
    const MAX_BYTES: usize = 64 + 202 + 2 * 32 + 4 * 10;

    fn encode(&self, out: &mut Vec<u8>) {
        put(self, out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let stamp: Self = take(bytes, "a field of the stamp is not readable")?;
        match stamp.time < stamp.until {
            true => Ok(stamp),
            false => Err(DecodeError::Invalid("the stamp's time is not before its deadline")),
        }
    }
}
