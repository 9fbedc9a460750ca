//! Step 1's answer: the destination's word on who committed to what, and when.

use super::{Commitment, Label, put, take};
use crate::{DecodeError, Signable, Signed, mesh::Name};
use serde::{Deserialize, Serialize};
use std::fmt;
use thalweg_units::{NodeId, WallTime};

/// One commitment, as the destination has it. Signed with the key of the destination's node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The drop box.
    pub drop_box: Name,
    /// Which commitment of the box this is, from 1; some may be missing.
    pub number: u64,
    /// The key that committed, and has proven itself on the channel.
    pub client: NodeId,
    /// What the client calls the data.
    pub label: Label,
    /// The data's size and hidden hash.
    pub commitment: Commitment,
    /// When, by the destination's clock; later than all stamps that it gave before.
    pub time: WallTime,
    /// The box's deadline then; after `time`.
    pub until: WallTime,
}

/// Names one stamp: a hash of it as it was signed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StampId(pub [u8; 32]);

impl StampId {
    /// Of a stamp.
    pub fn of(stamp: &Signed<Stamp>) -> Self {
        Self::of_bytes(&stamp.encode())
    }

    /// Of the bytes that [`Signed::encode`] gives.
    pub fn of_bytes(signed: &[u8]) -> Self {
        Self(blake3::derive_key("thalweg 2026 bistro stamp id 1", signed))
    }

    /// 64 hexadecimal digits.
    pub fn text(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.0)
    }

    /// The id of that text.
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
    /// Two texts of 64 and 202, two blocks of 32, five numbers of ten bytes at most.
    const MAX_BYTES: usize = 64 + 202 + 2 * 32 + 4 * 10;

    fn encode(&self, out: &mut Vec<u8>) {
        put(self, out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let stamp: Self = take(bytes, "a field of the stamp is not readable")?;
        match stamp.time < stamp.until {
            true => Ok(stamp),
            false => Err(DecodeError::Invalid("the stamp is not before its own deadline")),
        }
    }
}
