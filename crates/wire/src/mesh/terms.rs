//! The protocol between a client and a relay of the mesh, beyond SOCKS5.
//!
//! ```text
//! TCP       [preamble, from a relay only] TLS 1.3 handshake
//! in TLS →  METHODS{0x80} ask REQUEST            (one flight)
//! in TLS ←  METHOD{0x80} REPLY [GO]              then, on an open leg, clear bytes
//! in TLS →  [GO-ACK]                             then, on an open leg, clear bytes
//! ```
//!
//! GO and GO-ACK are each the last byte of the last TLS record in their direction. A reader takes TLS records from the
//! connection one at a time, so that it never mistakes clear bytes for TLS.

use super::Tag;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thalweg_units::NodeId;
use thiserror::Error;

/// The private SOCKS5 method (RFC 1928 §3: X'80'–X'FE') that announces terms.
pub const METHOD: u8 = 0x80;
/// The relay's last byte in TLS on an open leg.
pub const GO: u8 = b'G';
/// The client's last byte in TLS on an open leg.
pub const GO_ACK: u8 = b'A';
/// The maximum number of relays before this one; with this one, three.
pub const MAX_DEPTH: u8 = 2;

/// The protection of a leg after the handshake.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum LegKind {
    /// TLS throughout.
    #[default]
    Sealed,
    /// Clear bytes after the cut-over, for data that is encrypted or hashed already.
    Open,
}

/// A client's terms for one hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// The protection of the leg between client and relay.
    pub leg: LegKind,
    /// Tags that neither this relay nor a relay that it connects to may have.
    pub avoid: BTreeSet<Tag>,
}

/// The bytes are not valid terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TermsError {
    /// The terms are longer than [`RelayRequest::MAX_BYTES`].
    #[error("the terms are longer than allowed: {0} bytes")]
    TooLong(usize),
    /// The terms cannot be decoded.
    #[error("the terms are not readable")]
    Invalid,
}

impl Terms {
    /// Encodes the terms as an [`RelayRequest`] for a destination that is not a member.
    pub fn encode(&self) -> Vec<u8> {
        RelayRequest { terms: self.clone(), next: None }.encode()
    }
}

/// The message that a client sends after METHODS: its terms, and the next hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayRequest {
    pub terms: Terms,
    /// The key of the member to connect to, if the destination is the next hop of a chain of relays.
    ///
    /// A relay treats an address as a member's (whatever its class and port, with a [`Preamble`] first) only if the
    /// client names the member's key. Otherwise a member that lists a foreign address would change what other clients'
    /// connections send there.
    pub next: Option<NodeId>,
}

impl RelayRequest {
    /// The longest encoding, bytes: 32 tags of 63 bytes, and a key.
    pub const MAX_BYTES: usize = 2200;

    /// Encodes `length:u16 ‖ postcard`, big-endian.
    pub fn encode(&self) -> Vec<u8> {
        // Encoding this type to a vector cannot fail.
        let body = postcard::to_stdvec(self).unwrap_or_default();
        let mut out = Vec::with_capacity(2 + body.len());
        out.extend((body.len() as u16).to_be_bytes());
        out.extend(body);
        out
    }

    /// The length of the body, from the first two bytes.
    ///
    /// # Errors
    /// [`TermsError::TooLong`].
    pub fn length(head: [u8; 2]) -> Result<usize, TermsError> {
        let length = usize::from(u16::from_be_bytes(head));
        if length > Self::MAX_BYTES { Err(TermsError::TooLong(length)) } else { Ok(length) }
    }

    /// Decodes the whole body.
    ///
    /// # Errors
    /// [`TermsError`].
    pub fn decode(body: &[u8]) -> Result<Self, TermsError> {
        match postcard::take_from_bytes(body) {
            Ok((request, [])) => Ok(request),
            _ => Err(TermsError::Invalid),
        }
    }
}

/// The bytes that a relay sends before the client's when it connects to another relay.
///
/// It contains the number of relays so far. Each honest relay adds itself, so that a client cannot make a loop (case 31
/// in docs/faults/relay.md). Clients send no preamble.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preamble {
    /// The number of relays before the receiver, at least 1.
    pub depth: u8,
}

impl Preamble {
    /// The first byte; a TLS handshake begins with 0x16 instead.
    pub const FIRST: u8 = b'T';
    /// The length in bytes.
    pub const LENGTH: usize = 4;

    /// Encodes `T W 1 depth`.
    pub const fn encode(self) -> [u8; Self::LENGTH] {
        [Self::FIRST, b'W', b'1', self.depth]
    }

    /// Decodes a preamble; `None` if the bytes are invalid.
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
    fn terms_and_preambles_round_trip() {
        let avoid = ["country=xx".parse().unwrap(), "guest".parse().unwrap()].into();
        let terms = Terms { leg: LegKind::Open, avoid };
        let request = RelayRequest { terms, next: Some(NodeId::from_bytes([7; 32])) };
        let bytes = request.encode();
        let length = RelayRequest::length([bytes[0], bytes[1]]).unwrap();
        assert_eq!(length, bytes.len() - 2);
        assert_eq!(RelayRequest::decode(&bytes[2..]), Ok(request));
        assert_eq!(RelayRequest::length([0xff, 0xff]), Err(TermsError::TooLong(0xffff)));
        assert_eq!(RelayRequest::decode(&[0, 0, 0, 0]), Err(TermsError::Invalid));
        let preamble = Preamble { depth: 2 };
        assert_eq!(Preamble::decode(preamble.encode()), Some(preamble));
        assert_eq!(Preamble::decode(*b"TW1\0"), None);
        assert_eq!(Preamble::decode(*b"GET "), None);
    }
}
