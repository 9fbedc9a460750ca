//! Digests that the user expects of a whole file.

use super::PartError;
use md5::Md5;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha1::{Digest as _, Sha1};
use sha2::{Digest as _, Sha256, Sha512};
use std::{
    cmp::Ordering, fmt, fs::File, ops::Range, os::unix::fs::FileExt, path::Path, str::FromStr,
};
use thiserror::Error;

/// The size of a read when hashing: large enough that system calls do not matter, and small enough for a core's cache.
const BLOCK: usize = 256 << 10;

/// An expected digest. Its text form is `sha256:HEX` or `blake3:HEX` with 64 digits, `sha512:HEX` with 128, `sha1:HEX`
/// with 40, or `md5:HEX` with 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    /// SHA-256 (FIPS 180-4).
    Sha256([u8; 32]),
    /// SHA-512 (FIPS 180-4).
    Sha512([u8; 64]),
    /// BLAKE3, 256 bits.
    Blake3([u8; 32]),
    /// SHA-1 (FIPS 180-4). Detects accidental damage only: an author can create two files with the same hash.
    Sha1([u8; 20]),
    /// MD5 (RFC 1321). Detects accidental damage only, like SHA-1.
    Md5([u8; 16]),
}

/// The text is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "a digest is sha256: or blake3: with 64 hexadecimal digits, sha512: with 128, sha1: with 40, or md5: with 32"
)]
pub struct DigestError;

impl Digest {
    /// The algorithm's name: `sha256`, `sha512`, `blake3`, `sha1` or `md5`.
    pub fn algorithm(&self) -> &'static str {
        match self {
            Self::Sha256(_) => "sha256",
            Self::Sha512(_) => "sha512",
            Self::Blake3(_) => "blake3",
            Self::Sha1(_) => "sha1",
            Self::Md5(_) => "md5",
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Sha256(bytes) | Self::Blake3(bytes) => bytes,
            Self::Sha512(bytes) => bytes,
            Self::Sha1(bytes) => bytes,
            Self::Md5(bytes) => bytes,
        }
    }

    /// The hexadecimal digits without the algorithm.
    pub fn hex(&self) -> String {
        to_hex(self.bytes())
    }

    /// A hasher of the same algorithm.
    pub(super) fn hasher(&self) -> Hasher {
        match self {
            Self::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Self::Sha512(_) => Hasher::Sha512(Sha512::new()),
            Self::Blake3(_) => Hasher::Blake3(Box::default()),
            Self::Sha1(_) => Hasher::Sha1(Sha1::new()),
            Self::Md5(_) => Hasher::Md5(Md5::new()),
        }
    }

    /// Compares this digest with the one found at `path`.
    ///
    /// # Errors
    /// [`PartError::Digest`] with both digests if they differ.
    pub(super) fn expect(&self, found: Self, path: &Path) -> Result<(), PartError> {
        if found == *self {
            return Ok(());
        }
        let (expected, found) = (self.to_string(), found.to_string());
        Err(PartError::Digest { path: path.to_owned(), expected, found })
    }
}

/// The digests of a file's pieces, all of the same length except the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PieceDigests {
    /// The length of a piece, at least 1.
    pub length: u64,
    /// The digests, in order.
    pub digests: Vec<Digest>,
}

impl PieceDigests {
    /// Compares the first `length` bytes of `file`, opened at `path`, with the digests.
    pub(super) fn expect(&self, file: &File, length: u64, path: &Path) -> Result<(), PartError> {
        let count = length.div_ceil(self.length.max(1));
        let pieces = (0..).zip(&self.digests).take_while(|(number, _)| *number < count);
        for (number, digest) in pieces {
            let start = number * self.length;
            let range = start..length.min(start.saturating_add(self.length));
            let found = digest_of(digest, file, range).map_err(PartError::io("read", path))?;
            if found != *digest {
                return Err(differs(path, number, digest.to_string(), found.to_string()));
            }
        }
        let given = self.digests.len() as u64;
        let (expected, found) = match given.cmp(&count) {
            Ordering::Equal => return Ok(()),
            Ordering::Less => ("absent", "present"),
            Ordering::Greater => ("present", "absent"),
        };
        Err(differs(path, given.min(count), expected.to_owned(), found.to_owned()))
    }

    /// Whether the file at `path` matches the digests.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn are_of(&self, path: &Path) -> Result<bool, PartError> {
        let file = File::open(path).map_err(PartError::io("open", path))?;
        let length = file.metadata().map_err(PartError::io("read", path))?.len();
        Ok(self.expect(&file, length, path).is_ok())
    }
}

fn differs(path: &Path, number: u64, expected: String, found: String) -> PartError {
    let (expected, found) = (expected.into(), found.into());
    PartError::Piece { path: path.to_owned(), number: number + 1, expected, found }
}

/// A digest that is being computed.
pub(super) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
    Blake3(Box<blake3::Hasher>),
    Sha1(Sha1),
    Md5(Md5),
}

impl Hasher {
    fn update(&mut self, data: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(data),
            Self::Sha512(hasher) => hasher.update(data),
            Self::Blake3(hasher) => _ = hasher.update(data),
            Self::Sha1(hasher) => hasher.update(data),
            Self::Md5(hasher) => hasher.update(data),
        }
    }

    pub(super) fn finish(self) -> Digest {
        match self {
            Self::Sha256(hasher) => Digest::Sha256(hasher.finalize().into()),
            Self::Sha512(hasher) => Digest::Sha512(hasher.finalize().into()),
            Self::Blake3(hasher) => Digest::Blake3(hasher.finalize().into()),
            Self::Sha1(hasher) => Digest::Sha1(hasher.finalize().into()),
            Self::Md5(hasher) => Digest::Md5(hasher.finalize().into()),
        }
    }
}

/// Feeds the bytes `range` of `file` to all `hashers`, reading the bytes once.
pub(super) fn feed(hashers: &mut [Hasher], file: &File, range: Range<u64>) -> std::io::Result<()> {
    read(file, range, |block| hashers.iter_mut().for_each(|hasher| hasher.update(block)))
}

fn read(file: &File, range: Range<u64>, mut take: impl FnMut(&[u8])) -> std::io::Result<()> {
    let mut block = vec![0; BLOCK];
    let mut at = range.start;
    while at < range.end {
        let n = BLOCK.min(usize::try_from(range.end - at).unwrap_or(BLOCK));
        file.read_exact_at(&mut block[..n], at)?;
        take(&block[..n]);
        at += n as u64;
    }
    Ok(())
}

/// The digest of the bytes `range` of `file`, by the algorithm of `like`.
pub(super) fn digest_of(like: &Digest, file: &File, range: Range<u64>) -> std::io::Result<Digest> {
    let mut hashers = [like.hasher()];
    feed(&mut hashers, file, range)?;
    let [hasher] = hashers;
    Ok(hasher.finish())
}

/// The BLAKE3 of the bytes `range` of `file`.
pub(super) fn blake3_of(file: &File, range: Range<u64>) -> std::io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    read(file, range, |block| _ = hasher.update(block))?;
    Ok(hasher.finalize().into())
}

/// Formats bytes as lowercase hexadecimal digits.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Parses the hexadecimal digits of `N` bytes, in either case.
pub(super) fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm(), self.hex())
    }
}

impl FromStr for Digest {
    type Err = DigestError;
    fn from_str(s: &str) -> Result<Self, DigestError> {
        let (algorithm, hex) = s.split_once(':').ok_or(DigestError)?;
        let digest = match algorithm {
            "sha256" => parse_hex(hex).map(Self::Sha256),
            "sha512" => parse_hex(hex).map(Self::Sha512),
            "blake3" => parse_hex(hex).map(Self::Blake3),
            "sha1" => parse_hex(hex).map(Self::Sha1),
            "md5" => parse_hex(hex).map(Self::Md5),
            _ => None,
        };
        digest.ok_or(DigestError)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// The example "abc" of FIPS 180-4, and the BLAKE3 hash of no bytes.
    const SHA_ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const SHA512_ABC: &str = "sha512:ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                              2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
    const BLAKE_EMPTY: &str =
        "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

    #[test]
    fn files_are_compared_with_digests_of_all_kinds() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        let path = Path::new("abc");
        let sha: Digest = SHA_ABC.parse().unwrap();
        let blake: Digest = BLAKE_EMPTY.parse().unwrap();
        let found = |digest: Digest, length| {
            let mut hashers = [digest.hasher()];
            feed(&mut hashers, &file, 0..length).unwrap();
            let [hasher] = hashers;
            digest.expect(hasher.finish(), path)
        };
        found(sha, 3).unwrap();
        let long: Digest = SHA512_ABC.parse().unwrap();
        assert_eq!(long.to_string(), SHA512_ABC);
        found(long, 3).unwrap();
        assert!(found(long, 2).is_err());
        found(blake, 0).unwrap();
        let error = found(sha, 2).unwrap_err().to_string();
        assert!(error.contains(&sha.hex()), "{error}");
    }

    #[test]
    fn a_piece_that_differs_is_numbered() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abcabcab").unwrap();
        let abc: Digest = SHA_ABC.parse().unwrap();
        let of = |n: usize| PieceDigests { length: 3, digests: vec![abc; n] };
        let expect = |pieces: PieceDigests, length| pieces.expect(&file, length, Path::new("x"));
        expect(of(2), 6).unwrap();
        expect(of(0), 0).unwrap();
        for (n, length, number) in [(3, 8, 3), (2, 8, 3), (3, 6, 3), (1, 0, 1), (2, 5, 2)] {
            let error = expect(of(n), length).unwrap_err();
            assert!(matches!(error, PartError::Piece { number: n, .. } if n == number), "{error}");
        }
    }

    /// The examples "abc" of RFC 3174 and RFC 1321.
    #[test]
    fn weak_digests_are_read_and_compared() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        for text in [
            "sha1:a9993e364706816aba3e25717850c26c9cd0d89d",
            "md5:900150983cd24fb0d6963f7d28e17f72",
        ] {
            let digest: Digest = text.parse().unwrap();
            assert_eq!(digest.to_string(), text);
            for (length, is_right) in [(3, true), (2, false)] {
                let mut hashers = [digest.hasher()];
                feed(&mut hashers, &file, 0..length).unwrap();
                let [hasher] = hashers;
                let found = digest.expect(hasher.finish(), Path::new("abc"));
                assert_eq!(found.is_ok(), is_right, "{text}");
            }
        }
    }

    #[test]
    fn other_text_is_refused() {
        assert!("sha256:12".parse::<Digest>().is_err());
        assert!(format!("md5:{}", "0".repeat(64)).parse::<Digest>().is_err());
        assert!(format!("sha256:{}", "+".repeat(64)).parse::<Digest>().is_err());
    }
}
