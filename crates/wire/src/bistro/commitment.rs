//! Commitments: they bind a client to data that it has not shown yet (decision 0073).

use data_encoding::HEXLOWER_PERMISSIVE;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use thalweg_units::NodeId;

/// The BLAKE3 context string, which separates these hashes from all others.
const CONTEXT: &str = "thalweg 2026 bistro commitment 1: nonce, client key, data";

/// The secret that hides the data until the client shows it: 32 random bytes. Not printed by `Debug`.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nonce([u8; 32]);

impl Nonce {
    /// Creates a nonce from random bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for the client's evidence.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nonce(…)")
    }
}

/// The size and the hidden hash of encrypted data ([`super::EnvelopeKeys`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Commitment {
    /// The size of the encrypted data, bytes.
    pub size: u64,
    /// BLAKE3 in its key derivation mode over `nonce ‖ client key ‖ data`.
    ///
    /// The paper's hash is over nonce and data. The key is included so that somebody who sees a commitment, and later
    /// its nonce, cannot have made the same commitment under another key.
    pub hash: [u8; 32],
}

impl Commitment {
    /// The size of the data before encryption, bytes; [`Self::size`] if no envelope has that size.
    pub fn content_size(&self) -> u64 {
        super::content_size(self.size).unwrap_or(self.size)
    }

    /// The hash in hexadecimal digits.
    pub fn hash_text(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.hash)
    }
}

impl fmt::Debug for Commitment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Commitment({} B, {}…)", self.size, &self.hash_text()[..8])
    }
}

/// Computes the commitment of data.
#[derive(Clone)]
pub struct CommitmentHasher {
    hasher: blake3::Hasher,
    size: u64,
}

impl CommitmentHasher {
    /// Creates it, without data.
    pub fn new(nonce: &Nonce, client: &NodeId) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&nonce.0).update(client.as_bytes());
        Self { hasher, size: 0 }
    }

    /// Adds the next bytes of the data.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.size += bytes.len() as u64;
    }

    /// The number of bytes added.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The commitment of all bytes added.
    pub fn finish(&self) -> Commitment {
        Commitment { size: self.size, hash: *self.hasher.finalize().as_bytes() }
    }
}

impl fmt::Debug for CommitmentHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommitmentHasher({} B)", self.size)
    }
}

/// Decodes 32 bytes from 64 hexadecimal digits.
pub(super) fn hex32(text: &str) -> Option<[u8; 32]> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?.try_into().ok()
}

impl FromStr for Nonce {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        hex32(text).map(Self).ok_or("a nonce is 64 hexadecimal digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn commit(nonce: u8, client: u8, parts: &[&[u8]]) -> Commitment {
        let mut committing =
            CommitmentHasher::new(&Nonce([nonce; 32]), &NodeId::from_bytes([client; 32]));
        parts.iter().for_each(|part| committing.update(part));
        committing.finish()
    }

    #[test]
    fn a_commitment_depends_on_nonce_key_and_data() {
        let one = commit(1, 2, &[b"data"]);
        assert_eq!(one.size, 4);
        assert_ne!(one.hash, commit(3, 2, &[b"data"]).hash, "another nonce");
        assert_ne!(one.hash, commit(1, 3, &[b"data"]).hash, "another key");
        assert_ne!(one.hash, commit(1, 2, &[b"date"]).hash, "other data");
        assert_ne!(&one.hash, blake3::hash(b"data").as_bytes());
        assert!(!format!("{:?}", Nonce([7; 32])).contains('7'));
    }

    proptest! {
        #[test]
        fn the_parts_of_the_data_do_not_matter(data: Vec<u8>, cut: usize) {
            let (a, b) = data.split_at(cut % (data.len() + 1));
            prop_assert_eq!(commit(1, 2, &[a, b]), commit(1, 2, &[&data]));
        }
    }
}
