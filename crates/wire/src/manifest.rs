//! The chunks of an object: what lets each be verified on its own.

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

/// Bytes of every chunk but the last: 1 MiB, a whole subtree of BLAKE3 (1024 of its 1 KiB leaves).
pub const CHUNK_BYTES: u64 = 1 << 20;

/// The most chunks: objects of 4 TiB, manifests of 128 MiB.
pub const MAX_CHUNKS: usize = 1 << 22;

/// Layout of [`Manifest::encode`].
const VERSION: u8 = 1;

/// Version 1, length 8, object 32.
const HEADER: usize = 1 + 8 + 32;

/// An object's name: the BLAKE3 hash of its bytes, as `b3sum` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectId(Hash);

impl ObjectId {
    /// The object with this hash.
    pub const fn from_bytes(hash: [u8; 32]) -> Self {
        Self(Hash::from_bytes(hash))
    }

    /// The hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.0.to_hex())
    }
}

/// The chunk digests of an object, consistent with its name.
///
/// A digest is the chaining value of the chunk's subtree in BLAKE3's tree
/// (BLAKE3 paper §2.1), at the chunk's own place, or the hash itself when the
/// object is one chunk. The digests so add up to the object's name: digests that
/// do not are refused without a byte of the object, whoever sent them, and a
/// chunk is only ever right in its own place. The length is proven with the last
/// chunk: a forged one leaves chunks that no bytes fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    object: ObjectId,
    length: u64,
    digests: Vec<ChainingValue>,
}

/// A chunk is not what the manifest says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChunkError {
    /// There is no such chunk.
    #[error("chunk {index} does not exist: the object has {chunks}")]
    Index {
        /// The chunk asked for.
        index: usize,
        /// How many there are.
        chunks: usize,
    },
    /// Too short or too long.
    #[error("chunk {index} has {got} bytes instead of {expected}")]
    Length {
        /// The chunk.
        index: usize,
        /// Bytes given.
        got: u64,
        /// Bytes it has.
        expected: u64,
    },
    /// Other bytes.
    #[error("chunk {index} has the wrong content")]
    Content {
        /// The chunk.
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

    /// How many chunks it has; none if it is empty.
    pub fn chunks(&self) -> usize {
        self.digests.len()
    }

    /// The digests of all chunks, in order: see [`Manifest`].
    pub fn digests(&self) -> &[ChainingValue] {
        &self.digests
    }

    /// The manifest of an object whose chunks have these digests.
    ///
    /// # Errors
    /// [`DecodeError`] if there are more or fewer than the length has, or too many.
    pub fn of_digests(length: u64, digests: Vec<ChainingValue>) -> Result<Self, DecodeError> {
        let (given, chunks) = (digests.len() as u64, length.div_ceil(CHUNK_BYTES));
        if chunks > MAX_CHUNKS as u64 {
            let max = MAX_CHUNKS as u64 * CHUNK_BYTES;
            return Err(DecodeError::TooLarge { length, max });
        }
        if given != chunks {
            return Err(DecodeError::Invalid("not as many digests as the length has chunks"));
        }
        Ok(Self { object: ObjectId(root(&digests)), length, digests })
    }

    /// Where a chunk lies in the object; `None` if there is no such chunk.
    pub fn range(&self, index: usize) -> Option<Range<u64>> {
        let start = (index as u64).checked_mul(CHUNK_BYTES).filter(|s| *s < self.length)?;
        Some(start..(start + CHUNK_BYTES).min(self.length))
    }

    /// Whether `bytes` are the chunk `index`.
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

/// The object has more than [`MAX_CHUNKS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an object has at most {MAX_CHUNKS} chunks of {CHUNK_BYTES} bytes")]
pub struct ObjectTooLarge;

impl ManifestBuilder {
    /// For an object of which nothing is known yet.
    pub fn new() -> Self {
        Self { current: Hasher::new(), length: 0, digests: Vec::new() }
    }

    /// Takes the next bytes.
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

    /// The manifest of all the bytes taken.
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

/// The name that chunk digests add up to.
///
/// BLAKE3 paper §2.1: the left subtree is the largest power of two of chunks
/// that leaves at least one for the right.
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

/// As [`root`], below the root; at most 22 levels deep.
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

    /// Also checks that the digests add up to the object's name.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.array()? != [VERSION] {
            return Err(DecodeError::Invalid("unknown version of the manifest's layout"));
        }
        let length = u64::from_be_bytes(reader.array()?);
        let object = ObjectId::from_bytes(reader.array()?);
        let max = MAX_CHUNKS as u64 * CHUNK_BYTES;
        if length > max {
            return Err(DecodeError::TooLarge { length, max });
        }
        // Fits: at most MAX_CHUNKS · 32. Taken from the input before anything is allocated.
        let digests = reader.take(length.div_ceil(CHUNK_BYTES) as usize * 32)?;
        reader.end()?;
        let digests: Vec<ChainingValue> =
            digests.chunks_exact(32).filter_map(|d| d.try_into().ok()).collect();
        if root(&digests) != object.0 {
            return Err(DecodeError::Invalid("the chunks do not add up to the object's name"));
        }
        Ok(Self { object, length, digests })
    }
}
