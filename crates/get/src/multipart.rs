//! Parses bodies of several ranges: `multipart/byteranges` (RFC 9110 §14.6, RFC 2046 §5.1). Pure.
//!
//! The parser uses lengths: the Content-Range of a part states how long it is, so bytes of the file that look like a
//! boundary are bytes of the file. A part must be followed by the delimiter, otherwise its stated length was wrong. The
//! caller therefore holds a part's bytes back until the next piece is returned. Bytes of the file are not copied.

use bytes::{Buf, Bytes};
use thalweg_wire::content_range::ContentRange;

/// The most bytes between the data of two parts. Servers use about 200: a boundary and two fields.
const MAX_HEAD: usize = 4096;

/// The next piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A part begins.
    Part(ContentRange),
    /// Bytes of the part.
    Data(Bytes),
    /// The closing boundary.
    End,
}

/// The body is not a valid multipart body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Splits a body into parts.
pub(super) struct Multipart {
    delimiter: Vec<u8>,
    /// Remaining bytes of the current part.
    left: u64,
    /// The bytes read between two parts.
    head: Vec<u8>,
    /// Whether a part has just ended, so that CRLF and the delimiter must follow at once.
    after_part: bool,
    ended: bool,
}

impl Multipart {
    /// Creates the parser for a body with this `Content-Type`; `None` if it is another type or has no boundary.
    pub(super) fn from_content_type(content_type: &str) -> Option<Self> {
        let (kind, parameters) = content_type.split_once(';')?;
        if !kind.trim().eq_ignore_ascii_case("multipart/byteranges") {
            return None;
        }
        let boundary = parameters.split(';').find_map(|p| {
            let (name, value) = p.split_once('=')?;
            let value = value.trim().trim_matches('"');
            name.trim().eq_ignore_ascii_case("boundary").then_some(value)
        })?;
        // RFC 2046 §5.1.1: 1 to 70 characters.
        let delimiter = [b"--", boundary.as_bytes()].concat();
        (1..=70).contains(&boundary.len()).then_some(Self {
            delimiter,
            left: 0,
            head: Vec::new(),
            after_part: false,
            ended: false,
        })
    }

    /// Takes the next piece off `input`; `None` if more input is needed.
    ///
    /// # Errors
    /// [`Malformed`], only between two parts. The part before then has another length than stated, and none of its
    /// bytes can be trusted.
    pub(super) fn next(&mut self, input: &mut Bytes) -> Result<Option<Piece>, Malformed> {
        if self.ended {
            input.clear();
        }
        if input.is_empty() {
            return Ok(None);
        }
        if self.left > 0 {
            let n = self.left.min(input.len() as u64);
            self.left -= n;
            self.after_part = self.left == 0;
            return Ok(Some(Piece::Data(input.split_to(n as usize))));
        }
        self.between(input)
    }

    /// Collects the bytes between two parts, until a part begins or the body ends.
    fn between(&mut self, input: &mut Bytes) -> Result<Option<Piece>, Malformed> {
        let before = self.head.len();
        let room = MAX_HEAD - before;
        self.head.extend_from_slice(&input[..room.min(input.len())]);
        let lead = self.head.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        if self.after_part && !self.may_be_delimiter() {
            return Err(Malformed);
        }
        let closing = [&self.delimiter[..], b"--"].concat();
        if self.head[lead..].starts_with(&closing) {
            self.ended = true;
            input.clear();
            return Ok(Some(Piece::End));
        }
        let Some(end) = self.head[lead..].windows(4).position(|w| w == b"\r\n\r\n") else {
            input.advance(self.head.len() - before);
            return if self.head.len() < MAX_HEAD { Ok(None) } else { Err(Malformed) };
        };
        let end = lead + end;
        input.advance(end + 4 - before);
        let range = self.part_head(lead, end).ok_or(Malformed)?;
        self.head.clear();
        self.after_part = false;
        Ok(Some(Piece::Part(range)))
    }

    /// Whether the head read so far may be CRLF and the delimiter (RFC 2046 §5.1.1).
    fn may_be_delimiter(&self) -> bool {
        let expected = b"\r\n".iter().chain(&self.delimiter);
        self.head.iter().zip(expected).all(|(got, wanted)| got == wanted)
    }

    /// The Content-Range of the part whose boundary and fields are `head[from..to]`.
    fn part_head(&mut self, from: usize, to: usize) -> Option<ContentRange> {
        let text = std::str::from_utf8(&self.head[from..to]).ok()?;
        let mut lines = text.split("\r\n");
        if lines.next()?.trim_end().as_bytes() != self.delimiter {
            return None;
        }
        let fields = lines.filter_map(|line| line.split_once(':'));
        let mut values = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-range"));
        let range: ContentRange = values.next()?.1.trim().parse().ok()?;
        if values.next().is_some() {
            return None;
        }
        match range {
            ContentRange::Bytes { range, .. } => self.left = range.len(),
            ContentRange::Unsatisfied { .. } => return None,
        }
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ops::Range;

    const TYPE: &str = "multipart/byteranges; boundary=THIS_STRING_SEPARATES";

    /// The body that a server sends for these ranges of `file`.
    fn encode(file: &[u8], ranges: &[Range<usize>]) -> Vec<u8> {
        let mut body = Vec::new();
        for r in ranges {
            let (a, b, n) = (r.start, r.end - 1, file.len());
            body.extend_from_slice(
                format!(
                    "\r\n--THIS_STRING_SEPARATES\r\nContent-Type: application/pdf\r\n\
                     Content-Range: bytes {a}-{b}/{n}\r\n\r\n"
                )
                .as_bytes(),
            );
            body.extend_from_slice(&file[r.clone()]);
        }
        body.extend_from_slice(b"\r\n--THIS_STRING_SEPARATES--\r\n");
        body
    }

    /// Each part's Content-Range and data.
    type Parts = Vec<(String, Vec<u8>)>;

    /// The parts of `body` read in pieces of `step` bytes, and whether the body was closed.
    fn decode(body: &[u8], step: usize) -> Result<(Parts, bool), Malformed> {
        let mut reader = Multipart::from_content_type(TYPE).unwrap();
        let (mut parts, mut closed) = (Parts::new(), false);
        for chunk in body.chunks(step) {
            let mut input = Bytes::copy_from_slice(chunk);
            while let Some(piece) = reader.next(&mut input)? {
                match piece {
                    Piece::Part(range) => parts.push((range.to_string(), Vec::new())),
                    Piece::Data(data) => parts.last_mut().unwrap().1.extend_from_slice(&data),
                    Piece::End => closed = true,
                }
            }
        }
        Ok((parts, closed))
    }

    #[test]
    fn the_boundary_is_read_from_the_content_type() {
        for good in [
            TYPE,
            "Multipart/ByteRanges;boundary=\"x y\"",
            "multipart/byteranges; charset=x; BOUNDARY=00000000000000000001",
        ] {
            assert!(Multipart::from_content_type(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "text/html; boundary=x",
            "multipart/byteranges",
            "multipart/byteranges; boundary=",
            "multipart/byteranges; x=y",
        ] {
            assert!(Multipart::from_content_type(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_boundary_inside_a_part_is_data() {
        let file = b"ab\r\n--THIS_STRING_SEPARATES--\r\ncd";
        let (parts, closed) = decode(&encode(file, &[0..10, 12..file.len()]), 7).unwrap();
        assert_eq!(parts[0].1, file[0..10]);
        assert_eq!(parts[1].1, file[12..]);
        assert!(closed);
    }

    #[test]
    fn part_heads_without_exactly_one_range_or_too_long_are_malformed() {
        let part = |fields: &str| format!("--THIS_STRING_SEPARATES\r\n{fields}\r\n\r\nabc");
        for bad in [
            part("Content-Type: a/b"),
            part("Content-Range: bytes */9"),
            part("Content-Range: bytes 0-2/9\r\nContent-Range: bytes 3-5/9"),
            "--ANOTHER\r\nContent-Range: bytes 0-2/9\r\n\r\nabc".to_owned(),
            part(&"x".repeat(5000)),
        ] {
            assert_eq!(decode(bad.as_bytes(), 100), Err(Malformed), "{bad:.80}");
        }
    }

    #[test]
    fn a_part_of_another_length_than_stated_is_malformed() {
        for (from, to) in [("0-2/", "0-3/"), ("0-2/", "0-1/"), ("4-6/", "4-5/")] {
            let body = String::from_utf8(encode(b"abcdefghi", &[0..3, 4..7])).unwrap();
            let body = body.replace(from, to);
            for step in [1, 1000] {
                assert_eq!(decode(body.as_bytes(), step), Err(Malformed), "{from} {to}");
            }
        }
        // The stated length of the last part includes the closing delimiter, so the body is not closed.
        let body = String::from_utf8(encode(b"abcdefghi", &[0..3, 4..7])).unwrap();
        let decoded = decode(body.replace("4-6/", "4-8/").as_bytes(), 7);
        assert!(!matches!(decoded, Ok((_, true))));
    }

    proptest! {
        #[test]
        fn parts_are_read_as_they_were_encoded(
            file in proptest::collection::vec(any::<u8>(), 40..400),
            cuts in proptest::collection::vec(0usize..40, 2..8),
            step in 1usize..60,
        ) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            cuts.dedup();
            let ranges: Vec<_> = cuts.chunks_exact(2).map(|c| c[0]..c[1]).collect();
            let (parts, closed) = decode(&encode(&file, &ranges), step).unwrap();
            prop_assert!(closed);
            prop_assert_eq!(parts.len(), ranges.len());
            for ((name, data), r) in parts.iter().zip(&ranges) {
                prop_assert_eq!(data, &file[r.clone()]);
                let range = format!("bytes {}-{}/", r.start, r.end - 1);
                prop_assert!(name.starts_with(&range));
            }
        }

        /// Arbitrary bytes cause no panic, and no data without a part.
        #[test]
        fn arbitrary_bytes_cause_no_panic(noise in proptest::collection::vec(any::<u8>(), 0..600), step in 1usize..64) {
            _ = decode(&noise, step);
        }
    }
}
