//! Signed objects, such as rosters, receipts and manifests.

use crate::reader::Reader;
use std::fmt;
use thalweg_units::NodeId;
use thiserror::Error;

/// The first bytes of every signed message. A new layout gets a new number.
const PREFIX: &[u8] = b"thalweg signed 1\0";

/// Bytes before the payload: signer 32, signature 64, payload length 4.
const ENVELOPE: usize = 32 + 64 + 4;

/// An Ed25519 signature (RFC 8032 §5.1.6).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

impl Signature {
    /// Creates a signature from its bytes.
    pub const fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// The bytes of the signature.
    pub const fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str("…")
    }
}

/// A type that can be signed: it has one domain, and exactly one encoding per value.
///
/// Contract: `decode(encode(x)) == x`. `decode` may accept further encodings, as postcard's numbers have several:
/// [`Signed::open`] refuses all but that of `encode`, so that two encodings never carry the same meaning under one
/// signature.
pub trait Signable: Sized {
    /// The kind of object, e.g. `roster`. It is part of the signed message, so that a signature for one kind is invalid
    /// for another. At most 255 bytes.
    const DOMAIN: &'static str;

    /// The longest accepted encoding, in bytes.
    const MAX_BYTES: usize;

    /// Appends the canonical encoding.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes all of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`]. Invalid bytes cause neither a panic nor an allocation that is out of proportion to their
    /// length.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// The bytes do not encode a value of the type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The bytes end too early; contains the minimum number of missing bytes.
    #[error("{0} bytes are missing at the end")]
    Truncated(usize),
    /// Bytes follow the value; contains their number.
    #[error("{0} extra bytes are at the end")]
    TooLong(usize),
    /// The length exceeds the maximum.
    #[error("{length} bytes are more than the limit of {max}")]
    TooLarge {
        /// The encoded length.
        length: u64,
        max: u64,
    },
    /// A field has an invalid value; contains the reason.
    #[error("{0}")]
    Invalid(&'static str),
}

/// Signs messages with a private key.
///
/// Contract: `sign` is Ed25519 (RFC 8032, pure, deterministic) of exactly the message, and `verify` of a [`Verifier`]
/// accepts it for `id`.
pub trait Signer {
    /// The public key.
    fn id(&self) -> NodeId;

    fn sign(&self, message: &[u8]) -> Signature;
}

/// Verifies signatures.
///
/// Contract: accepts only signatures of the key's owner, *strictly*: canonical encodings only, and no small-order keys.
/// Otherwise one message has several valid signatures, and some keys accept any message. Whether the signer may sign
/// this object is not checked here but against the roster.
pub trait Verifier {
    /// Whether `signature` is the signature of `message` by `signer`.
    fn verify(&self, signer: &NodeId, message: &[u8], signature: &Signature) -> bool;
}

/// Why a signed object is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SignedError {
    /// The envelope or the object in it cannot be decoded.
    #[error("not a signed {domain}: {source}")]
    Decode { domain: &'static str, source: DecodeError },
    /// The object is encoded in another form than the canonical one.
    #[error("the {0} is not in its canonical form")]
    NotCanonical(&'static str),
    /// The object was altered, or signed with another key, or signed as another kind of object.
    #[error("the {domain} is not signed by {signer:?}")]
    Signature {
        domain: &'static str,
        /// The signer that the envelope names.
        signer: NodeId,
    },
}

/// A value with its signer and signature, which was signed or *verified* by this process.
///
/// [`Signed::open`] is the only way to create one from bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed<T> {
    value: T,
    signer: NodeId,
    signature: Signature,
}

/// The signed message: `PREFIX ‖ len(domain):u8 ‖ domain ‖ payload`.
fn message<T: Signable>(payload: &[u8]) -> Vec<u8> {
    const { assert!(T::DOMAIN.len() <= 255, "a domain has at most 255 bytes") };
    let domain = T::DOMAIN.as_bytes();
    let mut out = Vec::with_capacity(PREFIX.len() + 1 + domain.len() + payload.len());
    out.extend(PREFIX);
    out.push(domain.len() as u8);
    out.extend(domain);
    out.extend(payload);
    out
}

impl<T: Signable> Signed<T> {
    /// Signs a value.
    pub fn sign(value: T, signer: &impl Signer) -> Self {
        let mut payload = Vec::new();
        value.encode(&mut payload);
        let signature = signer.sign(&message::<T>(&payload));
        Self { value, signer: signer.id(), signature }
    }

    /// Reads `signer ‖ signature ‖ length:u32 ‖ payload` (big-endian) and verifies it.
    ///
    /// The signature is verified before the payload is decoded. Memory: a small multiple of the input, which is refused
    /// beyond [`Signable::MAX_BYTES`].
    ///
    /// # Errors
    /// [`SignedError`].
    pub fn open(bytes: &[u8], verifier: &impl Verifier) -> Result<Self, SignedError> {
        let domain = T::DOMAIN;
        let wrong = |source| SignedError::Decode { domain, source };
        let (signer, signature, payload) = split::<T>(bytes).map_err(wrong)?;
        if !verifier.verify(&signer, &message::<T>(payload), &signature) {
            return Err(SignedError::Signature { domain, signer });
        }
        let value = T::decode(payload).map_err(wrong)?;
        let mut again = Vec::with_capacity(payload.len());
        value.encode(&mut again);
        match again == payload {
            true => Ok(Self { value, signer, signature }),
            false => Err(SignedError::NotCanonical(domain)),
        }
    }

    /// Joins a value and its signature, and verifies it.
    ///
    /// # Errors
    /// [`SignedError::Signature`].
    pub fn from_parts(
        value: T,
        signer: NodeId,
        signature: Signature,
        verifier: &impl Verifier,
    ) -> Result<Self, SignedError> {
        let mut payload = Vec::new();
        value.encode(&mut payload);
        match verifier.verify(&signer, &message::<T>(&payload), &signature) {
            true => Ok(Self { value, signer, signature }),
            false => Err(SignedError::Signature { domain: T::DOMAIN, signer }),
        }
    }

    /// Encodes it for [`Signed::open`].
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        self.value.encode(&mut payload);
        let mut out = Vec::with_capacity(ENVELOPE + payload.len());
        out.extend(self.signer.as_bytes());
        out.extend(self.signature.as_bytes());
        out.extend((payload.len() as u32).to_be_bytes());
        out.extend(payload);
        out
    }

    /// The value that was signed.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The key that signed it.
    pub fn signer(&self) -> NodeId {
        self.signer
    }

    /// The signature.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Returns the value without its signature.
    pub fn into_value(self) -> T {
        self.value
    }
}

fn split<T: Signable>(bytes: &[u8]) -> Result<(NodeId, Signature, &[u8]), DecodeError> {
    let mut reader = Reader::new(bytes);
    let signer = NodeId::from_bytes(reader.array()?);
    let signature = Signature(reader.array()?);
    let length = u32::from_be_bytes(reader.array()?);
    let max = T::MAX_BYTES as u64;
    if u64::from(length) > max {
        return Err(DecodeError::TooLarge { length: length.into(), max });
    }
    let payload = reader.take(length as usize)?;
    reader.end()?;
    Ok((signer, signature, payload))
}
