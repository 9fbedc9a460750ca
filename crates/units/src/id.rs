//! Identifiers of nodes and paths.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// A node's identity: its Ed25519 public key.
///
/// Printed as 64 hexadecimal digits; 32 bytes in binary formats. Pure crates work on dense indices, which their callers
/// map to `NodeId`s.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId([u8; 32]);

/// The text is not 64 hexadecimal digits; contains its length in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid node ID of {0} bytes: expected 64 hexadecimal digits")]
pub struct NodeIdError(usize);

impl NodeId {
    /// Creates the identity from a public key.
    pub const fn from_bytes(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// The public key.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for NodeId {
    /// Prints the first eight digits, which distinguish nodes in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("…")
    }
}

impl FromStr for NodeId {
    type Err = NodeIdError;
    fn from_str(s: &str) -> Result<Self, NodeIdError> {
        let fail = || NodeIdError(s.len());
        if s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(fail());
        }
        let mut key = [0; 32];
        for (byte, pair) in key.iter_mut().zip(s.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| fail())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| fail())?;
        }
        Ok(Self(key))
    }
}

impl Serialize for NodeId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        if s.is_human_readable() { s.collect_str(self) } else { self.0.serialize(s) }
    }
}

impl<'de> Deserialize<'de> for NodeId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        if !d.is_human_readable() {
            return <[u8; 32]>::deserialize(d).map(Self);
        }
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

/// The dense index of a path within one transfer or plan; 0 is the direct path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PathId(pub u32);

impl PathId {
    /// The direct path, without relays.
    pub const DIRECT: Self = Self(0);
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::DIRECT { f.pad("direct") } else { f.pad(&format!("path {}", self.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_round_trip_and_other_text_is_refused() {
        let id = NodeId::from_bytes([0xab; 32]);
        assert_eq!(id.to_string().parse::<NodeId>(), Ok(id));
        assert!("ab".parse::<NodeId>().is_err());
        assert!("+".repeat(64).parse::<NodeId>().is_err());
        assert!("é".repeat(32).parse::<NodeId>().is_err());
    }
}
