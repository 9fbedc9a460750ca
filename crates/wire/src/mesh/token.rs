//! Join tokens: texts that let one host join the mesh, once.

use crate::Destination;
use data_encoding::BASE64URL_NOPAD;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use thalweg_units::NodeId;
use thiserror::Error;

/// The secret of a token: 128 random bits. Not printed by `Debug`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u8; 16]);

impl Secret {
    /// Creates a secret from random bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The BLAKE3 hash of the secret, which the oracle stores. A fast hash suffices for 128 random bits.
    pub fn hash(&self) -> [u8; 32] {
        *blake3::hash(&self.0).as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Everything that a host needs to join: the keys to trust, the oracle's addresses, and a secret.
///
/// Prints and reads as `thalweg-` and one base64url word. Its holder can join once, until it expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The mesh's key, which signs rosters.
    pub mesh: NodeId,
    /// The oracle's TLS key.
    pub oracle: NodeId,
    /// The oracle's addresses, the best first.
    pub addresses: Vec<Destination>,
    pub secret: Secret,
}

/// Why a text is not a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// The text does not begin like a token.
    #[error(
        "this is not a join token, which begins with `thalweg-`; make one with `thalweg mesh token`"
    )]
    Prefix,
    /// The token was truncated or altered.
    #[error("the join token is incomplete or altered; copy all of it")]
    Altered,
}

const PREFIX: &str = "thalweg-";

/// The number of bytes of a BLAKE3 hash at the end, which detect copying errors.
const CHECK: usize = 4;

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Encoding this type to a vector cannot fail.
        let mut bytes = postcard::to_stdvec(self).unwrap_or_default();
        let check = blake3::hash(&bytes);
        bytes.extend(&check.as_bytes()[..CHECK]);
        write!(f, "{PREFIX}{}", BASE64URL_NOPAD.encode(&bytes))
    }
}

impl FromStr for Token {
    type Err = TokenError;
    fn from_str(s: &str) -> Result<Self, TokenError> {
        let word = s.trim().strip_prefix(PREFIX).ok_or(TokenError::Prefix)?;
        let bytes = BASE64URL_NOPAD.decode(word.as_bytes()).map_err(|_| TokenError::Altered)?;
        let at = bytes.len().checked_sub(CHECK).ok_or(TokenError::Altered)?;
        let (body, check) = bytes.split_at(at);
        if blake3::hash(body).as_bytes()[..CHECK] != *check {
            return Err(TokenError::Altered);
        }
        postcard::from_bytes(body).map_err(|_| TokenError::Altered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip_and_copying_errors_are_detected() {
        let token = Token {
            mesh: NodeId::from_bytes([1; 32]),
            oracle: NodeId::from_bytes([2; 32]),
            addresses: vec!["10.0.0.1:7373".parse().unwrap()],
            secret: Secret::from_bytes([3; 16]),
        };
        let text = token.to_string();
        assert_eq!(text.parse(), Ok(token.clone()));
        assert_eq!(format!(" {text}\n").parse(), Ok(token));
        assert_eq!(text[..text.len() - 1].parse::<Token>(), Err(TokenError::Altered));
        assert_eq!("hello".parse::<Token>(), Err(TokenError::Prefix));
        for at in PREFIX.len()..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'A' { b'B' } else { b'A' };
            let other = String::from_utf8(other).unwrap();
            assert!(other == text || other.parse::<Token>().is_err(), "{at}");
        }
    }
}
