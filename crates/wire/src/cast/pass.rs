//! Passes, by which receivers prove to each other that they belong to a cast.

use super::CastId;
use crate::{
    mesh::Name,
    reader::Reader,
    signed::{DecodeError, Signable},
};
use std::str;
use thalweg_units::WallTime;

/// Proof that a member is a receiver of a cast, which it shows to other receivers; signed by the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass {
    pub cast: CastId,
    pub to: Name,
    /// The date from which on the pass is invalid.
    pub expiry: WallTime,
}

impl Signable for Pass {
    const DOMAIN: &'static str = "cast-pass";
    const MAX_BYTES: usize = 16 + 8 + 1 + 63;

    /// `cast:16 ‖ expiry:u64 ‖ length of the name:u8 ‖ name`, big-endian.
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.cast.as_bytes());
        out.extend(self.expiry.as_unix_nanos().to_be_bytes());
        // A name has at most 63 bytes.
        out.push(self.to.as_str().len() as u8);
        out.extend(self.to.as_str().as_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let cast = CastId::from_bytes(reader.array()?);
        let expiry = WallTime::from_unix_nanos(u64::from_be_bytes(reader.array()?));
        let [length] = reader.array()?;
        let name = str::from_utf8(reader.take(length.into())?).ok();
        reader.end()?;
        let to = name.and_then(|name| name.parse().ok());
        let to =
            to.ok_or(DecodeError::Invalid("the receiver's name is not a valid member name"))?;
        Ok(Self { cast, to, expiry })
    }
}
