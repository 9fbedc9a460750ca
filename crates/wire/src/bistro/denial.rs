//! Signed refusals, which others can pass on and show.

use super::{Commitment, Refusal, StampId, put, take};
use crate::{DecodeError, Signable, SignedError, Verifier};
use serde::{Deserialize, Serialize};
use thalweg_units::NodeId;

/// The destination's refusal of one submission, signed with the key of its node.
///
/// It names the submission, so that it cannot be used as the refusal of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    /// The id of the refused stamp, or the hash of the refused commitment. Both depend on the client's key.
    pub about: [u8; 32],
    pub refusal: Refusal,
}

impl Denial {
    /// Creates the refusal of a commitment.
    pub fn for_commitment(commitment: &Commitment, refusal: Refusal) -> Self {
        Self { about: commitment.hash, refusal }
    }

    /// Creates the refusal of a receipt for the data of this stamp.
    pub fn for_stamp(stamp: StampId, refusal: Refusal) -> Self {
        Self { about: stamp.0, refusal }
    }

    /// Decodes a denial, and checks that `destination` signed it and that it is about this submission.
    ///
    /// # Errors
    /// A description of what is wrong.
    pub fn read(
        bytes: &[u8],
        destination: &NodeId,
        about: &[u8; 32],
        verifier: &impl Verifier,
    ) -> Result<Refusal, String> {
        let wrong = |e: SignedError| e.to_string();
        let denial = crate::Signed::<Self>::open(bytes, verifier).map_err(wrong)?;
        match () {
            () if denial.signer() != *destination => {
                Err("the refusal is signed by a key other than the destination's".to_owned())
            }
            () if denial.value().about != *about => {
                Err("the refusal is for another submission".to_owned())
            }
            () => Ok(denial.into_value().refusal),
        }
    }
}

impl Signable for Denial {
    const DOMAIN: &'static str = "bistro refusal 1";
    /// A refusal may contain the text of a system error with a path.
    const MAX_BYTES: usize = 8 << 10;

    fn encode(&self, out: &mut Vec<u8>) {
        put(self, out);
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        take(bytes, "a field of the refusal is not readable")
    }
}
