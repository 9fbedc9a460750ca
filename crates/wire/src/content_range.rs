//! The HTTP fields `Range` and `Content-Range` with the unit bytes (RFC 9110 §14.1–14.4).
//!
//! These types read and write *one* range each. In its completion phase UKAIRO (§3.2.1) requests several ranges at
//! once: the caller joins them in one `Range` field, and reads a [`ContentRange`] from each part of the
//! `multipart/byteranges` response. Reading a `Range` field with several ranges is an error here.

use std::{fmt, ops, str::FromStr};
use thiserror::Error;

/// Bytes `first` to `last`, both inclusive, with `first <= last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    first: u64,
    last: u64,
}

/// Why the text of a `Range` or `Content-Range` field is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RangeError {
    /// It is not one range of bytes in the syntax of the RFC.
    #[error("not a single byte range in the form of RFC 9110 §14")]
    Syntax,
    /// A number is above 2^64 - 1.
    #[error("a position in the range does not fit in 64 bits")]
    Overflow,
    /// The last byte is before the first.
    #[error("the range ends before it starts")]
    Backwards,
    /// The range reaches to or past the complete length.
    #[error("the range ends past the complete length")]
    PastEnd,
}

impl ByteRange {
    /// Creates the range of bytes `first` to `last`, both inclusive.
    ///
    /// # Errors
    /// [`RangeError::Backwards`] if `last < first`.
    pub const fn new(first: u64, last: u64) -> Result<Self, RangeError> {
        if last < first { Err(RangeError::Backwards) } else { Ok(Self { first, last }) }
    }

    /// Converts a half-open range; `None` if it is empty.
    pub const fn from_half_open(bytes: ops::Range<u64>) -> Option<Self> {
        match bytes.end.checked_sub(1) {
            Some(last) if bytes.start <= last => Some(Self { first: bytes.start, last }),
            _ => None,
        }
    }

    /// The position of the first byte.
    pub const fn first(self) -> u64 {
        self.first
    }

    /// The position of the last byte.
    pub const fn last(self) -> u64 {
        self.last
    }

    /// The number of bytes; [`u64::MAX`] also for the range of all 2^64.
    #[expect(clippy::len_without_is_empty, reason = "a byte range holds at least one byte")]
    pub const fn len(self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

/// A client's `Range` field (RFC 9110 §14.2).
///
/// Reads and prints as `bytes=0-99`, `bytes=100-`, `bytes=-500`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRange {
    Bytes(ByteRange),
    /// From this byte to the end.
    From(u64),
    /// This number of bytes at the end; 0 is well-formed but never satisfiable.
    Suffix(u64),
}

impl RequestRange {
    /// The requested bytes of a representation of `length` bytes; `None` if the range is unsatisfiable (status 416).
    pub fn within(self, length: u64) -> Option<ByteRange> {
        let end = length.checked_sub(1)?;
        let (first, last) = match self {
            Self::Bytes(r) => (r.first, r.last.min(end)),
            Self::From(first) => (first, end),
            Self::Suffix(0) => return None,
            Self::Suffix(n) => (length.saturating_sub(n), end),
        };
        ByteRange::new(first, last).ok()
    }
}

/// A server's `Content-Range` field (RFC 9110 §14.4).
///
/// Reads and prints as `bytes 0-99/1234`, `bytes 0-99/*`, `bytes */1234`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// The body is a range of the representation.
    Bytes {
        /// The bytes in the body.
        range: ByteRange,
        /// The representation's length, greater than `range.last()`; `None`: unknown (`*`).
        complete: Option<u64>,
    },
    /// With status 416: the representation does not have the requested bytes.
    Unsatisfied {
        /// The representation's length.
        complete: u64,
    },
}

/// Reads a decimal number of one or more digits, without sign or space.
fn number(text: &str) -> Result<u64, RangeError> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(RangeError::Syntax);
    }
    text.parse().map_err(|_| RangeError::Overflow)
}

/// The text after the unit `bytes` (in any case, RFC 9110 §14.1) and `separator`.
fn after_unit(text: &str, separator: char) -> Result<&str, RangeError> {
    let (unit, rest) = text.split_once(separator).ok_or(RangeError::Syntax)?;
    if unit.eq_ignore_ascii_case("bytes") { Ok(rest) } else { Err(RangeError::Syntax) }
}

impl FromStr for RequestRange {
    type Err = RangeError;
    fn from_str(s: &str) -> Result<Self, RangeError> {
        let spec = after_unit(s.trim_matches([' ', '\t']), '=')?;
        match spec.split_once('-').ok_or(RangeError::Syntax)? {
            ("", suffix) => number(suffix).map(Self::Suffix),
            (first, "") => number(first).map(Self::From),
            (first, last) => ByteRange::new(number(first)?, number(last)?).map(Self::Bytes),
        }
    }
}

impl fmt::Display for RequestRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(r) => write!(f, "bytes={}-{}", r.first, r.last),
            Self::From(first) => write!(f, "bytes={first}-"),
            Self::Suffix(n) => write!(f, "bytes=-{n}"),
        }
    }
}

impl FromStr for ContentRange {
    type Err = RangeError;
    fn from_str(s: &str) -> Result<Self, RangeError> {
        let spec = after_unit(s.trim_matches([' ', '\t']), ' ')?;
        let (range, complete) = spec.split_once('/').ok_or(RangeError::Syntax)?;
        if range == "*" {
            return Ok(Self::Unsatisfied { complete: number(complete)? });
        }
        let (first, last) = range.split_once('-').ok_or(RangeError::Syntax)?;
        let range = ByteRange::new(number(first)?, number(last)?)?;
        let complete = if complete == "*" { None } else { Some(number(complete)?) };
        if complete.is_some_and(|c| c <= range.last) {
            return Err(RangeError::PastEnd);
        }
        Ok(Self::Bytes { range, complete })
    }
}

impl fmt::Display for ContentRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes { range, complete: Some(n) } => {
                write!(f, "bytes {}-{}/{n}", range.first, range.last)
            }
            Self::Bytes { range, complete: None } => {
                write!(f, "bytes {}-{}/*", range.first, range.last)
            }
            Self::Unsatisfied { complete } => write!(f, "bytes */{complete}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_rfcs_examples_are_read() {
        let range = ByteRange::new(42, 1233).unwrap();
        let read = |s: &str| s.parse::<ContentRange>();
        assert_eq!(
            read("bytes 42-1233/1234"),
            Ok(ContentRange::Bytes { range, complete: Some(1234) })
        );
        assert_eq!(read("bytes 42-1233/*"), Ok(ContentRange::Bytes { range, complete: None }));
        assert_eq!(read("bytes */1234"), Ok(ContentRange::Unsatisfied { complete: 1234 }));
        assert_eq!("bytes=-500".parse(), Ok(RequestRange::Suffix(500)));
        assert_eq!("bytes=9500-".parse(), Ok(RequestRange::From(9500)));
        assert_eq!("Bytes=0-0".parse(), Ok(RequestRange::Bytes(ByteRange { first: 0, last: 0 })));
    }

    #[test]
    fn invalid_content_ranges_are_refused_with_the_reason() {
        for (text, error) in [
            ("", RangeError::Syntax),
            ("bytes", RangeError::Syntax),
            ("bytes 0-1", RangeError::Syntax),
            ("bytes */*", RangeError::Syntax),
            ("bytes  0-1/2", RangeError::Syntax),
            ("bytes +0-1/2", RangeError::Syntax),
            ("bytes=0-1/2", RangeError::Syntax),
            ("items 0-1/2", RangeError::Syntax),
            ("bytes 0-1/2, 3-4/5", RangeError::Syntax),
            ("bytes 2-1/9", RangeError::Backwards),
            ("bytes 0-2/2", RangeError::PastEnd),
            ("bytes 0-18446744073709551616/*", RangeError::Overflow),
        ] {
            assert_eq!(text.parse::<ContentRange>(), Err(error), "{text}");
        }
    }

    #[test]
    fn a_requested_range_is_cut_to_the_representation() {
        let within = |s: &str, n| s.parse::<RequestRange>().unwrap().within(n);
        assert_eq!(within("bytes=0-9", 5), ByteRange::new(0, 4).ok());
        assert_eq!(within("bytes=5-", 5), None);
        assert_eq!(within("bytes=-3", 5), ByteRange::new(2, 4).ok());
        assert_eq!(within("bytes=-9", 5), ByteRange::new(0, 4).ok());
        assert_eq!(within("bytes=-0", 5), None);
        assert_eq!(within("bytes=0-", 0), None);
    }

    #[test]
    fn half_open_ranges_convert_and_empty_ones_do_not() {
        assert_eq!(ByteRange::from_half_open(3..7), ByteRange::new(3, 6).ok());
        assert_eq!(ByteRange::from_half_open(3..3), None);
        assert_eq!(ByteRange::from_half_open(0..0), None);
        assert_eq!(ByteRange::new(0, u64::MAX).unwrap().len(), u64::MAX);
    }

    proptest! {
        #[test]
        fn fields_round_trip(first: u64, len in 1u64.., rest: u64, known: bool) {
            let Some(last) = first.checked_add(len - 1) else { return Ok(()) };
            let range = ByteRange::new(first, last).unwrap();
            let complete = last.checked_add(1).and_then(|n| n.checked_add(rest)).filter(|_| known);
            let field = ContentRange::Bytes { range, complete };
            prop_assert_eq!(field.to_string().parse(), Ok(field));
            let request = RequestRange::Bytes(range);
            prop_assert_eq!(request.to_string().parse(), Ok(request));
            prop_assert_eq!(range.len(), len);
        }
    }
}
