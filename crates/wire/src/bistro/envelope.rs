//! The format of encrypted data, and the keys that its client keeps to reproduce it (decision 0102).
//!
//! ```text
//! head     MAGIC ‖ encapsulated key ‖ content key, encrypted by HPKE (RFC 9180)   96 bytes
//! pieces   nonce ‖ up to 64 KiB of data, encrypted ‖ tag                          28 bytes more each
//! end      nonce ‖ BLAKE3 of the data, encrypted ‖ tag                            60 bytes
//! ```

use data_encoding::BASE64URL_NOPAD;
use std::{fmt, str::FromStr};

/// The first bytes of encrypted data.
pub const ENVELOPE_MAGIC: &[u8; 16] = b"thalweg sealed 1";

/// Bytes of data in one piece. A resumed push encrypts at most one piece again.
pub const PIECE: usize = 64 << 10;

/// Bytes added to each piece: a nonce of 12 and a tag of 16.
pub const PIECE_EXTRA: usize = 12 + 16;

/// Bytes before the first piece.
pub const ENVELOPE_HEAD: usize = ENVELOPE_MAGIC.len() + 32 + 48;

/// Bytes after the last piece.
pub const ENVELOPE_END: usize = 32 + PIECE_EXTRA;

/// Bytes of an envelope without data.
const FIXED_BYTES: u64 = (ENVELOPE_HEAD + ENVELOPE_END) as u64;

/// The number of pieces for this many bytes of data.
const fn pieces(content: u64) -> u64 {
    content.div_ceil(PIECE as u64)
}

/// The size of the envelope of this many bytes of data.
pub const fn envelope_size(content: u64) -> u64 {
    let extra = pieces(content).saturating_mul(PIECE_EXTRA as u64);
    content.saturating_add(extra).saturating_add(FIXED_BYTES)
}

/// The bytes of data in an envelope of this size; `None` if no envelope has this size.
pub const fn content_size(envelope: u64) -> Option<u64> {
    let Some(inner) = envelope.checked_sub(FIXED_BYTES) else { return None };
    let whole = (PIECE + PIECE_EXTRA) as u64;
    let (full, rest) = (inner / whole, inner % whole);
    match rest {
        0 => Some(full * PIECE as u64),
        rest if rest > PIECE_EXTRA as u64 => Some(full * PIECE as u64 + rest - PIECE_EXTRA as u64),
        _ => None,
    }
}

/// The keys that reproduce an envelope from its data, and open it. Secret; not printed by `Debug`.
///
/// The client needs them to continue a push, and to compare data with a commitment later.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EnvelopeKeys {
    /// The key encapsulated by HPKE for the destination.
    pub encapsulated: [u8; 32],
    /// The content key, encrypted by HPKE for the destination.
    pub wrapped: [u8; 48],
    pub content: [u8; 32],
}

impl fmt::Debug for EnvelopeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EnvelopeKeys(…)")
    }
}

impl fmt::Display for EnvelopeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [&self.encapsulated[..], &self.wrapped, &self.content].concat();
        f.write_str(&BASE64URL_NOPAD.encode(&all))
    }
}

impl FromStr for EnvelopeKeys {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = "the keys of an envelope are 112 bytes in base64url";
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| wrong)?;
        let (encapsulated, rest) = bytes.split_first_chunk().ok_or(wrong)?;
        let (wrapped, content) = rest.split_first_chunk().ok_or(wrong)?;
        let content = content.try_into().map_err(|_| wrong)?;
        Ok(Self { encapsulated: *encapsulated, wrapped: *wrapped, content })
    }
}

/// The BLAKE3 hash of data, as `b3sum` prints it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ContentHash(pub [u8; 32]);

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for ContentHash {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        super::commitment::hex32(text).map(Self).ok_or("a hash is 64 hexadecimal digits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_round_trip_at_the_boundaries_of_pieces() {
        let piece = PIECE as u64;
        for content in [0, 1, piece - 1, piece, piece + 1, 2 * piece, 100_000_000_000] {
            assert_eq!(content_size(envelope_size(content)), Some(content), "{content}");
        }
        assert_eq!((envelope_size(0), envelope_size(1)), (156, 156 + 29));
        let no_envelope = [0, 155, 157, 156 + 28, 156 + 28 + piece + 1];
        assert_eq!(no_envelope.map(content_size), [None; 5]);
        assert_eq!(envelope_size(u64::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn sizes_round_trip(size in 0..1_u64 << 50) {
            prop_assert_eq!(content_size(envelope_size(size)), Some(size));
            if let Some(content) = content_size(size) {
                prop_assert_eq!(envelope_size(content), size);
            }
        }

        #[test]
        fn keys_round_trip(encapsulated: [u8; 32], content: [u8; 32], byte: u8, text: String) {
            let keys = EnvelopeKeys { encapsulated, wrapped: [byte; 48], content };
            prop_assert_eq!(keys.to_string().parse(), Ok(keys));
            let shown = format!("{keys:?}");
            prop_assert_eq!(shown, "EnvelopeKeys(…)");
            _ = text.parse::<EnvelopeKeys>();
        }
    }
}
