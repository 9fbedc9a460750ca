//! The manifest of an object: digests by which each chunk can be verified on its own.

use crate::{
    reader::Reader,
    signed::{DecodeError, Signable},
};
use blake3::{
    Hash, Hasher,
    hazmat::{self, ChainingValue, HasherExt, Mode},
};
use std::ops::Range;
use thiserror::Error;

/// Bytes of each chunk except the last: 1 MiB, a whole subtree of BLAKE3 (1024 leaves of 1 KiB).
pub const CHUNK_BYTES: u64 = 1 << 20;

/// The maximum number of chunks: objects of 4 TiB, manifests of 128 MiB.
pub const MAX_CHUNKS: usize = 1 << 22;

/// The version of the layout that `Manifest::encode` writes.
const VERSION: u8 = 1;

/// Bytes before the digests: version 1, length 8, object 32.
const HEADER: usize = 1 + 8 + 32;

/// The name of an object: the BLAKE3 hash of its bytes, as `b3sum` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectId(Hash);

impl ObjectId {
    /// Creates the name from a hash.
    pub const fn from_bytes(hash: [u8; 32]) -> Self {
        Self(Hash::from_bytes(hash))
    }

    pub const fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0.to_hex())
    }
}

/// The chunk digests of an object, which are consistent with its name.
///
/// A digest is the chaining value of the chunk's subtree in BLAKE3's tree (BLAKE3 paper §2.1) at the chunk's position,
/// or the hash itself if the object is one chunk. So the name follows from the digests: wrong digests are refused
/// without a byte of the object, whoever sent them, and a chunk is valid only at its position. The last chunk proves
/// the length: with a forged length no bytes match the digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    object: ObjectId,
    length: u64,
    digests: Vec<ChainingValue>,
}

/// A chunk does not match the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChunkError {
    /// The chunk does not exist.
    #[error("chunk {index} does not exist: the object has {chunks}")]
    Index {
        /// The index of the chunk.
        index: usize,
        /// The number of chunks.
        chunks: usize,
    },
    /// The chunk is too short or too long.
    #[error("chunk {index} has {got} bytes instead of {expected}")]
    Length {
        /// The index of the chunk.
        index: usize,
        /// The number of bytes passed for this chunk.
        got: u64,
        /// The bytes of this chunk.
        expected: u64,
    },
    /// The chunk has the wrong bytes.
    #[error("chunk {index} has the wrong content")]
    Content {
        /// The index of the chunk.
        index: usize,
    },
}

impl Manifest {
    /// The object's name.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// The object's length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The number of chunks; 0 if the object is empty.
    pub fn chunks(&self) -> usize {
        self.digests.len()
    }

    /// The digests of all chunks, in order; see [`Manifest`].
    pub fn digests(&self) -> &[ChainingValue] {
        &self.digests
    }

    /// Creates the manifest of an object of this length from the digests of its chunks.
    ///
    /// # Errors
    /// [`DecodeError`] if the number of digests does not match the length, or the object is too large.
    pub fn of_digests(length: u64, digests: Vec<ChainingValue>) -> Result<Self, DecodeError> {
        let (given, chunks) = (digests.len() as u64, length.div_ceil(CHUNK_BYTES));
        if chunks > MAX_CHUNKS as u64 {
            let max = MAX_CHUNKS as u64 * CHUNK_BYTES;
            return Err(DecodeError::TooLarge { length, max });
        }
        if given != chunks {
            return Err(DecodeError::Invalid("the number of digests does not match the length"));
        }
        Ok(Self { object: ObjectId(root(&digests)), length, digests })
    }

    /// The byte range of a chunk in the object; `None` if the chunk does not exist.
    pub fn range(&self, index: usize) -> Option<Range<u64>> {
        let start = (index as u64).checked_mul(CHUNK_BYTES).filter(|s| *s < self.length)?;
        Some(start..(start + CHUNK_BYTES).min(self.length))
    }

    /// Checks that `bytes` are the chunk `index`.
    ///
    /// # Errors
    /// [`ChunkError`].
    pub fn verify(&self, index: usize, bytes: &[u8]) -> Result<(), ChunkError> {
        let chunks = self.chunks();
        let range = self.range(index).ok_or(ChunkError::Index { index, chunks })?;
        let (got, expected) = (bytes.len() as u64, range.end - range.start);
        if got != expected {
            return Err(ChunkError::Length { index, got, expected });
        }
        let hasher = chunk_hasher(index, bytes);
        let found =
            if chunks == 1 { *hasher.finalize().as_bytes() } else { hasher.finalize_non_root() };
        if found == self.digests[index] { Ok(()) } else { Err(ChunkError::Content { index }) }
    }
}

fn chunk_hasher(index: usize, bytes: &[u8]) -> Hasher {
    let mut hasher = Hasher::new();
    hasher.set_input_offset(index as u64 * CHUNK_BYTES);
    hasher.update(bytes);
    hasher
}

/// Builds a [`Manifest`] from an object's bytes, in order and in pieces of any size.
///
/// Each byte is hashed once. Memory: 32 bytes per chunk.
#[derive(Clone, Debug)]
pub struct ManifestBuilder {
    current: Hasher,
    length: u64,
    digests: Vec<ChainingValue>,
}

impl Default for ManifestBuilder {
    fn default() -> Self {
        Self::new()
    }
}

/// The object has more than [`MAX_CHUNKS`] chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an object has at most {MAX_CHUNKS} chunks of {CHUNK_BYTES} bytes")]
pub struct ObjectTooLarge;

impl ManifestBuilder {
    /// Creates a builder without bytes.
    pub fn new() -> Self {
        Self { current: Hasher::new(), length: 0, digests: Vec::new() }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let filled = self.length % CHUNK_BYTES;
            if filled == 0 && self.length > 0 {
                self.digests.push(self.current.finalize_non_root());
                self.current = chunk_hasher(self.digests.len(), &[]);
            }
            let room = usize::try_from(CHUNK_BYTES - filled).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.current.update(now);
            self.length += now.len() as u64;
            bytes = later;
        }
    }

    /// Returns the manifest of all bytes added.
    ///
    /// # Errors
    /// [`ObjectTooLarge`].
    pub fn finish(self) -> Result<Manifest, ObjectTooLarge> {
        let Self { current, length, mut digests } = self;
        if digests.is_empty() {
            let root = current.finalize();
            let digests = if length == 0 { Vec::new() } else { vec![*root.as_bytes()] };
            return Ok(Manifest { object: ObjectId(root), length, digests });
        }
        digests.push(current.finalize_non_root());
        if digests.len() > MAX_CHUNKS {
            return Err(ObjectTooLarge);
        }
        Ok(Manifest { object: ObjectId(root(&digests)), length, digests })
    }
}

/// Computes the object's name from the chunk digests.
///
/// BLAKE3 paper §2.1: the left subtree has the largest power of two of chunks that leaves at least one for the right.
fn root(digests: &[ChainingValue]) -> Hash {
    match digests {
        [] => Hasher::new().finalize(),
        [only] => Hash::from_bytes(*only),
        many => {
            let (left, right) = many.split_at(many.len().next_power_of_two() / 2);
            hazmat::merge_subtrees_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

/// As [`root`], for a subtree below the root; at most 22 levels deep.
fn subtree(digests: &[ChainingValue]) -> ChainingValue {
    match digests {
        [only] => *only,
        many => {
            let (left, right) = many.split_at(many.len().next_power_of_two() / 2);
            hazmat::merge_subtrees_non_root(&subtree(left), &subtree(right), Mode::Hash)
        }
    }
}

impl Signable for Manifest {
    const DOMAIN: &'static str = "manifest";
    const MAX_BYTES: usize = HEADER + 32 * MAX_CHUNKS;

    /// `version:u8 ‖ length:u64 ‖ object:32 ‖ digests:32 each`, big-endian.
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        out.extend(self.length.to_be_bytes());
        out.extend(self.object.as_bytes());
        out.extend(self.digests.iter().flatten());
    }

    /// Also checks that the object's name follows from the digests.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.array()? != [VERSION] {
            return Err(DecodeError::Invalid("the version of the manifest's layout is not known"));
        }
        let length = u64::from_be_bytes(reader.array()?);
        let object = ObjectId::from_bytes(reader.array()?);
        let max = MAX_CHUNKS as u64 * CHUNK_BYTES;
        if length > max {
            return Err(DecodeError::TooLarge { length, max });
        }
        // The product fits, since it is at most MAX_CHUNKS · 32. It is taken from the input before anything is
        // allocated.
        let digests = reader.take(length.div_ceil(CHUNK_BYTES) as usize * 32)?;
        reader.end()?;
        let digests: Vec<ChainingValue> =
            digests.chunks_exact(32).filter_map(|d| d.try_into().ok()).collect();
        if root(&digests) != object.0 {
            return Err(DecodeError::Invalid(
                "the chunks' digests do not add up to the object's hash",
            ));
        }
        Ok(Self { object, length, digests })
    }
}
