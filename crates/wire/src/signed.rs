//! Objects with a signature: rosters, receipts, manifests.

use crate::reader::Reader;
use std::fmt;
use thalweg_units::NodeId;
use thiserror::Error;

/// The first bytes of every signed message; a new layout gets a new number.
const PREFIX: &[u8] = b"thalweg signed 1\0";

/// Envelope: signer 32, signature 64, payload length 4.
const ENVELOPE: usize = 32 + 64 + 4;

/// An Ed25519 signature (RFC 8032 §5.1.6).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; 64]);

impl Signature {
    /// The signature with these bytes.
    pub const fn from_bytes(bytes: [u8; 64]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
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

/// What can be signed: a type with one domain and exactly one encoding per value.
///
/// Contract: `decode(encode(x)) == x`, and `encode(decode(b)) == b` whenever
/// `decode` accepts `b`. [`Signed::open`] checks the second on every message,
/// so that two texts never carry one meaning under one signature.
pub trait Signable: Sized {
    /// Names the kind of object, e.g. `roster`; part of what is signed, so that a
    /// signature under one kind is none under another. At most 255 bytes.
    const DOMAIN: &'static str;

    /// The longest encoding that is accepted, in bytes.
    const MAX_BYTES: usize;

    /// Appends the canonical bytes.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads the canonical bytes, all of them.
    ///
    /// # Errors
    /// What is wrong with them; never panics, and allocates no more than they warrant.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// Bytes that do not encode a value of the type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// They end too early; holds how many more are needed at least.
    #[error("{0} bytes are missing at the end")]
    Truncated(usize),
    /// There are more than the value has.
    #[error("{0} bytes too many at the end")]
    TooLong(usize),
    /// The length is above what is ever accepted.
    #[error("{length} bytes are more than the {max} that are accepted")]
    TooLarge {
        /// The length given.
        length: u64,
        /// The greatest accepted.
        max: u64,
    },
    /// A field has a value that it cannot have.
    #[error("{0}")]
    Invalid(&'static str),
}

/// Makes signatures: where the private key is.
///
/// Contract: `sign` is Ed25519 (RFC 8032, pure, deterministic) of exactly the
/// message; `verify` of a [`Verifier`] accepts it for `id`.
pub trait Signer {
    /// The public key.
    fn id(&self) -> NodeId;

    /// Signs the message.
    fn sign(&self, message: &[u8]) -> Signature;
}

/// Checks signatures.
///
/// Contract: accepts only what the key's owner signed, *strictly*: canonical
/// encodings alone, no small-order keys (else one message has several valid
/// signatures, and some keys accept any message). It says nothing about
/// whether the signer may sign this; that is the roster's matter.
pub trait Verifier {
    /// Whether `signature` is `signer`'s of `message`.
    fn verify(&self, signer: &NodeId, message: &[u8], signature: &Signature) -> bool;
}

/// The signed object is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SignedError {
    /// The envelope or the object in it.
    #[error("not a signed {domain}: {source}")]
    Decode {
        /// [`Signable::DOMAIN`].
        domain: &'static str,
        /// What is wrong.
        source: DecodeError,
    },
    /// Bytes that mean the same as the canonical ones and are not them.
    #[error("the {0} is not in its canonical form")]
    NotCanonical(&'static str),
    /// Altered, or signed by somebody else, or as something else.
    #[error("the {domain} is not signed by {signer:?}")]
    Signature {
        /// [`Signable::DOMAIN`].
        domain: &'static str,
        /// Who is said to have signed.
        signer: NodeId,
    },
}

/// A value with its signer and signature, which has been made or *verified* here.
///
/// There is no way to one from bytes but [`Signed::open`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed<T> {
    value: T,
    signer: NodeId,
    signature: Signature,
}

/// What is signed: `PREFIX ‖ len(domain):u8 ‖ domain ‖ payload`.
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
    /// The signature is checked before the payload is read. Memory: a small
    /// multiple of the input, which is refused beyond [`Signable::MAX_BYTES`].
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

    /// The bytes that [`Signed::open`] reads.
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

    /// The value.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Who signed it.
    pub fn signer(&self) -> NodeId {
        self.signer
    }

    /// The value, without its proof.
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
