//! The signed digests of a block's repair symbols.

use super::{CastId, MAX_REPAIR};
use crate::{
    reader::Reader,
    signed::{DecodeError, Signable},
};

/// The digests of the repair symbols of one block. Repair symbols are not part of the object, so the manifest does not
/// cover them, and the source signs their digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairSheet {
    pub cast: CastId,
    pub block: u32,
    /// One digest per repair symbol, from ESI K on.
    pub digests: Vec<[u8; 32]>,
}

impl Signable for RepairSheet {
    const DOMAIN: &'static str = "cast-repair";
    const MAX_BYTES: usize = 16 + 4 + 4 + 32 * MAX_REPAIR as usize;

    /// `cast:16 ‖ block:u32 ‖ count:u32 ‖ digests:32 each`, big-endian.
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.cast.as_bytes());
        out.extend(self.block.to_be_bytes());
        // At most `MAX_REPAIR`: `decode` refuses more.
        out.extend((self.digests.len() as u32).to_be_bytes());
        out.extend(self.digests.as_flattened());
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let cast = CastId::from_bytes(reader.array()?);
        let block = u32::from_be_bytes(reader.array()?);
        let count = u32::from_be_bytes(reader.array()?);
        if count > MAX_REPAIR {
            let (length, max) = (count.into(), MAX_REPAIR.into());
            return Err(DecodeError::TooLarge { length, max });
        }
        let (digests, _) = reader.take(32 * count as usize)?.as_chunks::<32>();
        let digests = digests.to_vec();
        reader.end()?;
        Ok(Self { cast, block, digests })
    }
}
