//! Ids of casts.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// The id of a cast; printed as 32 hexadecimal digits.
///
/// Derived from the source, the object and how it is cut ([`super::Offer::id`]), so that the same command continues the
/// same cast after a crash, whatever state the source has kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CastId([u8; 16]);

/// The text is not 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a cast's name is 32 hexadecimal digits")]
pub struct CastIdError;

impl CastId {
    /// Creates an id from its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes of the id.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for CastId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for CastId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CastId({self})")
    }
}

impl FromStr for CastId {
    type Err = CastIdError;
    fn from_str(s: &str) -> Result<Self, CastIdError> {
        if s.len() != 32 || !s.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Err(CastIdError);
        }
        let number = u128::from_str_radix(s, 16).map_err(|_| CastIdError)?;
        Ok(Self(number.to_be_bytes()))
    }
}
