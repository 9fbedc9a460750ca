//! What passes between a client and a mesh's relay beside SOCKS5.
//!
//! ```text
//! TCP       [preamble, from a relay only] TLS 1.3 handshake
//! in TLS →  METHODS{0x80} ask REQUEST            (one flight)
//! in TLS ←  METHOD{0x80} REPLY [GO]              then, on an open leg, clear bytes
//! in TLS →  [GO-ACK]                             then, on an open leg, clear bytes
//! ```
//!
//! GO and GO-ACK are each the last byte of the last TLS record of their
//! direction. Whoever reads takes TLS records off the connection one by one,
//! so that no clear byte is ever taken for TLS.

use super::Tag;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thalweg_units::NodeId;
use thiserror::Error;

/// SOCKS5's private method (RFC 1928 §3: X'80'–X'FE') that announces terms.
pub const METHOD: u8 = 0x80;
/// The relay's last byte in TLS on an open leg.
pub const GO: u8 = b'G';
/// The client's last byte in TLS on an open leg.
pub const GO_ACK: u8 = b'A';
/// Relays before this one that are allowed: with it, three.
pub const MAX_DEPTH: u8 = 2;

/// How a leg is carried once the handshake is done.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum LegKind {
    /// TLS throughout.
    #[default]
    Sealed,
    /// Clear bytes after the cut-over: for what is encrypted or hashed already.
    Open,
}

/// A client's terms for one hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// How the leg between client and this relay is carried.
    pub leg: LegKind,
    /// Tags that neither this relay nor a relay it connects to may carry.
    pub avoid: BTreeSet<Tag>,
}

/// The bytes are no terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TermsError {
    /// Longer than [`Ask::MAX_BYTES`].
    #[error("terms of {0} bytes are longer than allowed")]
    TooLong(usize),
    /// Not readable.
    #[error("the terms are not readable")]
    Invalid,
}

impl Terms {
    /// As an [`Ask`] for a destination that is no member.
    pub fn encode(&self) -> Vec<u8> {
        Ask { terms: self.clone(), next: None }.encode()
    }
}

/// What a client sends after METHODS: its terms, and who is at the other end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// How, and what to avoid.
    pub terms: Terms,
    /// The member to be connected to, if the destination is the next hop of a chain.
    ///
    /// A relay treats an address as a member's (whatever its class and port, with a
    /// [`Preamble`] first) only if the client says so by the member's key: else a member
    /// that lists somebody else's address would change what others say there.
    pub next: Option<NodeId>,
}

impl Ask {
    /// The longest encoding: 32 tags of 63 bytes, and a key.
    pub const MAX_BYTES: usize = 2200;

    /// `length:u16 ‖ postcard`, big-endian.
    pub fn encode(&self) -> Vec<u8> {
        // Writing to a vector fails for no value of this type.
        let body = postcard::to_stdvec(self).unwrap_or_default();
        let mut out = Vec::with_capacity(2 + body.len());
        out.extend((body.len() as u16).to_be_bytes());
        out.extend(body);
        out
    }

    /// How long the body is, from the first two bytes.
    ///
    /// # Errors
    /// [`TermsError::TooLong`].
    pub fn length(head: [u8; 2]) -> Result<usize, TermsError> {
        let length = usize::from(u16::from_be_bytes(head));
        if length > Self::MAX_BYTES { Err(TermsError::TooLong(length)) } else { Ok(length) }
    }

    /// Reads the body, all of it.
    ///
    /// # Errors
    /// [`TermsError`].
    pub fn decode(body: &[u8]) -> Result<Self, TermsError> {
        match postcard::take_from_bytes(body) {
            Ok((ask, [])) => Ok(ask),
            _ => Err(TermsError::Invalid),
        }
    }
}

/// What a relay sends before the client's bytes when it connects to another relay's port.
///
/// It counts the relays before; each honest one adds itself, so that a client
/// cannot make a loop (`relays.md` case 31). A client connects without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preamble {
    /// Relays before the receiver, 1 at least.
    pub depth: u8,
}

impl Preamble {
    /// Its first byte; a TLS handshake begins with 0x16 instead.
    pub const FIRST: u8 = b'T';
    /// Its length in bytes.
    pub const LENGTH: usize = 4;

    /// `T W 1 depth`.
    pub const fn encode(self) -> [u8; Self::LENGTH] {
        [Self::FIRST, b'W', b'1', self.depth]
    }

    /// Reads it.
    pub fn decode(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        match bytes {
            [Self::FIRST, b'W', b'1', depth] if depth > 0 => Some(Self { depth }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_and_preambles_go_both_ways() {
        let avoid = ["country=xx".parse().unwrap(), "guest".parse().unwrap()].into();
        let terms = Terms { leg: LegKind::Open, avoid };
        let ask = Ask { terms, next: Some(NodeId::from_bytes([7; 32])) };
        let bytes = ask.encode();
        let length = Ask::length([bytes[0], bytes[1]]).unwrap();
        assert_eq!(length, bytes.len() - 2);
        assert_eq!(Ask::decode(&bytes[2..]), Ok(ask));
        assert_eq!(Ask::length([0xff, 0xff]), Err(TermsError::TooLong(0xffff)));
        assert_eq!(Ask::decode(&[0, 0, 0, 0]), Err(TermsError::Invalid));
        let preamble = Preamble { depth: 2 };
        assert_eq!(Preamble::decode(preamble.encode()), Some(preamble));
        assert_eq!(Preamble::decode(*b"TW1\0"), None);
        assert_eq!(Preamble::decode(*b"GET "), None);
    }
}
