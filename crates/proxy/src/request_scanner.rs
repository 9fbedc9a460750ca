//! Incoming requests: finds where each request on a program's connection begins, and takes out its target.
//!
//! hyper parses a target into `http::Uri`, which refuses bytes that origins accept (`<`, `` ` ``, Latin-1). So the
//! target is taken out of the request line unchanged before hyper sees it, and hyper gets `/` in its place.
//!
//! hyper alone decides what a message is. Nothing after a head is passed on to hyper before it has read that head and
//! told which content follows ([`RequestScanner::expect_content`]); what comes after the content waits until hyper asks
//! for the next head. [`Chunks`] finds the end of chunked content. If it and hyper disagree about invalid chunks, a
//! line of content may be altered, or a target with odd bytes be refused; but only hyper decides where requests begin,
//! so no request can be smuggled in.

use bytes::Bytes;
use thiserror::Error;

/// The longest request line. RFC 9112 §3 recommends at least 8,000 bytes; nginx and Squid take as much, hyper 65,534.
pub const MAX_LINE: usize = 64 << 10;

/// What hyper reads in place of an invalid request line.
const REPLACEMENT: &[u8] = b"GET / HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n";

/// Why a request line is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// Not `METHOD TARGET HTTP/1.1`.
    #[error("this is not an HTTP request: it does not begin with a method, a target and HTTP/1.1")]
    NotHttp,
    /// White space or a control character in the target (RFC 9112 §3.2).
    #[error(
        "the request's target contains the byte {0:#04x}; spaces and control characters must be percent-encoded"
    )]
    Byte(u8),
    /// Another version of HTTP.
    #[error("this proxy supports only HTTP/1.1 and HTTP/1.0")]
    Version,
    /// Longer than [`MAX_LINE`].
    #[error("the request line is longer than {MAX_LINE} bytes")]
    Long,
}

/// The content that follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFraming {
    /// This many bytes; 0: no content.
    Length(u64),
    Chunked,
}

/// A request line that was read: its target, byte for byte.
pub type RequestTarget = Result<Bytes, LineError>;

/// Follows the bytes that a program sends. Pure.
#[derive(Debug, Default)]
pub struct RequestScanner {
    at: ScanPosition,
    /// The request line, as far as it has arrived.
    line: Vec<u8>,
}

#[derive(Debug, Default)]
enum ScanPosition {
    /// In a request line, or before it.
    #[default]
    Line,
    /// In the fields. `empty`: the current line is empty so far.
    Fields {
        empty: bool,
    },
    /// After a head that hyper has not read yet.
    Behind,
    Content(u64),
    Chunks(Chunks),
    /// Nothing more is passed on.
    Over,
}

impl RequestScanner {
    /// Consumes some of `bytes`, and appends to `seen` what hyper is to read in their place. Returns the number of
    /// bytes consumed; 0 means that hyper must read the head first. Also returns a request's target once its line is
    /// complete.
    pub fn take(&mut self, bytes: &[u8], seen: &mut Vec<u8>) -> (usize, Option<RequestTarget>) {
        match &mut self.at {
            ScanPosition::Line => self.take_line(bytes, seen),
            ScanPosition::Fields { empty } => {
                let (taken, ended) = fields(bytes, empty);
                seen.extend_from_slice(&bytes[..taken]);
                if ended {
                    self.at = ScanPosition::Behind;
                }
                (taken, None)
            }
            ScanPosition::Behind => (0, None),
            ScanPosition::Content(_) | ScanPosition::Chunks(_) => {
                let taken = self.take_content(bytes);
                seen.extend_from_slice(&bytes[..taken]);
                (taken, None)
            }
            ScanPosition::Over => (bytes.len(), None),
        }
    }

    fn take_line(&mut self, bytes: &[u8], seen: &mut Vec<u8>) -> (usize, Option<RequestTarget>) {
        let end = bytes.iter().position(|b| *b == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        self.line.extend_from_slice(&bytes[..taken]);
        let line = match end {
            _ if self.line.len() > MAX_LINE => Err(LineError::Long),
            None if !begins_like_http(&self.line) => Err(LineError::NotHttp),
            None => return (taken, None),
            // Empty lines before a request are ignored (RFC 9112 §2.2).
            Some(_) if matches!(&self.line[..], b"\n" | b"\r\n") => {
                self.line.clear();
                return (taken, None);
            }
            Some(_) => split(&self.line),
        };
        let line = line.map(|(method, target, version)| {
            seen.extend_from_slice(&[method, b" / ", version, b"\r\n"].concat());
            Bytes::copy_from_slice(target)
        });
        self.at = match &line {
            Ok(_) => ScanPosition::Fields { empty: true },
            Err(_) => {
                seen.extend_from_slice(REPLACEMENT);
                ScanPosition::Over
            }
        };
        self.line.clear();
        (taken, Some(line))
    }

    /// The program has closed its direction: passes on an incomplete request line, which hyper refuses.
    pub fn end(&mut self, seen: &mut Vec<u8>) {
        seen.append(&mut self.line);
    }

    /// hyper has read a head, and this content follows.
    pub fn expect_content(&mut self, content: ContentFraming) {
        // Nothing follows a line that was refused.
        if matches!(self.at, ScanPosition::Behind) {
            self.at = match content {
                ContentFraming::Length(0) => ScanPosition::Line,
                ContentFraming::Length(length) => ScanPosition::Content(length),
                ContentFraming::Chunked => ScanPosition::Chunks(Chunks::default()),
            };
        }
    }

    /// Whether content comes next, which passes unchanged.
    pub fn is_in_content(&self) -> bool {
        matches!(self.at, ScanPosition::Content(_) | ScanPosition::Chunks(_))
    }

    /// Whether part of a head was passed on that hyper has not read yet.
    pub fn is_in_head(&self) -> bool {
        matches!(self.at, ScanPosition::Fields { .. } | ScanPosition::Behind)
    }

    /// Whether no request is unfinished.
    pub fn is_idle(&self) -> bool {
        matches!(self.at, ScanPosition::Line) && self.line.is_empty()
    }

    /// Whether nothing more is passed on, because a request line was invalid.
    pub fn is_over(&self) -> bool {
        matches!(self.at, ScanPosition::Over)
    }

    /// How many of `bytes` belong to the current content.
    pub fn take_content(&mut self, bytes: &[u8]) -> usize {
        match &mut self.at {
            ScanPosition::Content(left) => {
                let passing = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= passing as u64;
                if *left == 0 {
                    self.at = ScanPosition::Line;
                }
                passing
            }
            ScanPosition::Chunks(chunks) => {
                let passing = chunks.pass(bytes);
                if chunks.is_over() {
                    self.at = ScanPosition::Line;
                }
                passing
            }
            _ => 0,
        }
    }
}

/// Reads fields up to the empty line that ends them. Returns the number of bytes, and whether they end there.
fn fields(bytes: &[u8], empty: &mut bool) -> (usize, bool) {
    for (i, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' if *empty => return (i + 1, true),
            b'\n' => *empty = true,
            b'\r' => {}
            _ => *empty = false,
        }
    }
    (bytes.len(), false)
}

/// Whether this may be the beginning of a request line. Other protocols, such as TLS, are refused at once, because
/// their first message may contain no line end and the client would wait for an answer.
fn begins_like_http(line: &[u8]) -> bool {
    matches!(line, b"\r") || line.iter().take_while(|b| **b != b' ').copied().all(is_token)
}

type TargetParts<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// Splits a request line with its line end into method, target and version (RFC 9112 §3).
fn split(line: &[u8]) -> Result<TargetParts<'_>, LineError> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let space = |b: &u8| *b == b' ';
    let first = line.iter().position(space).ok_or(LineError::NotHttp)?;
    let last = line.iter().rposition(space).filter(|last| *last > first + 1);
    let (method, version) = (&line[..first], &line[last.ok_or(LineError::NotHttp)? + 1..]);
    let target = &line[first + 1..line.len() - version.len() - 1];
    if method.is_empty() || !method.iter().copied().all(is_token) || !version.starts_with(b"HTTP/")
    {
        return Err(LineError::NotHttp);
    }
    if !matches!(version, b"HTTP/1.1" | b"HTTP/1.0") {
        return Err(LineError::Version);
    }
    match target.iter().find(|b| **b <= b' ' || **b == 0x7f) {
        Some(bad) => Err(LineError::Byte(*bad)),
        None => Ok((method, target, version)),
    }
}

/// A byte of a token (RFC 9110 §5.6.2).
fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// Finds the end of chunked content (RFC 9112 §7.1), as hyper parses it.
#[derive(Debug, Default)]
struct Chunks {
    at: ChunkPosition,
    size: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkPosition {
    #[default]
    Size,
    /// After the size, up to the end of its line.
    Extension,
    Data,
    /// The line end after a chunk's data.
    DataEnd,
    /// In a line of the trailer section, which may be the empty one at its end.
    Trailer {
        empty: bool,
    },
    Over,
    /// An invalid chunk, which hyper will report.
    Broken,
}

impl Chunks {
    fn is_over(&self) -> bool {
        self.at == ChunkPosition::Over
    }

    /// How many of `bytes` belong to the content.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut passed = 0;
        while let Some(rest) = bytes.get(passed..).filter(|rest| !rest.is_empty()) {
            passed += match self.at {
                ChunkPosition::Over => break,
                ChunkPosition::Broken => rest.len(),
                ChunkPosition::Data => self.data(rest.len()),
                _ => self.step(rest[0]),
            };
        }
        passed
    }

    fn data(&mut self, have: usize) -> usize {
        let passing = usize::try_from(self.size).unwrap_or(usize::MAX).min(have);
        self.size -= passing as u64;
        if self.size == 0 {
            self.at = ChunkPosition::DataEnd;
        }
        passing
    }

    /// Takes one byte outside of data.
    fn step(&mut self, byte: u8) -> usize {
        self.at = match (self.at, byte) {
            (ChunkPosition::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                match self.size.checked_mul(16) {
                    Some(size) => {
                        self.size = size | u64::from(digit);
                        ChunkPosition::Size
                    }
                    None => ChunkPosition::Broken,
                }
            }
            (ChunkPosition::Size | ChunkPosition::Extension, b'\n') => match self.size {
                0 => ChunkPosition::Trailer { empty: true },
                _ => ChunkPosition::Data,
            },
            (ChunkPosition::Size | ChunkPosition::Extension, _) => ChunkPosition::Extension,
            (ChunkPosition::DataEnd, b'\r') => ChunkPosition::DataEnd,
            (ChunkPosition::DataEnd, b'\n') => ChunkPosition::Size,
            (ChunkPosition::Trailer { empty: true }, b'\n') => ChunkPosition::Over,
            (ChunkPosition::Trailer { .. }, b'\n') => ChunkPosition::Trailer { empty: true },
            (ChunkPosition::Trailer { empty }, b'\r') => ChunkPosition::Trailer { empty },
            (ChunkPosition::Trailer { .. }, _) => ChunkPosition::Trailer { empty: false },
            (
                ChunkPosition::DataEnd
                | ChunkPosition::Data
                | ChunkPosition::Over
                | ChunkPosition::Broken,
                _,
            ) => ChunkPosition::Broken,
        };
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Passes `bytes` in pieces of `piece`; `contents` follow the heads. Returns what hyper sees, and the request
    /// lines.
    fn through(
        bytes: &[u8],
        piece: usize,
        contents: &[ContentFraming],
    ) -> (Vec<u8>, Vec<RequestTarget>) {
        let (mut heads, mut contents) = (RequestScanner::default(), contents.iter());
        let (mut seen, mut lines) = (Vec::new(), Vec::new());
        for mut rest in bytes.chunks(piece.max(1)) {
            while !rest.is_empty() {
                let (taken, line) = heads.take(rest, &mut seen);
                lines.extend(line);
                rest = &rest[taken..];
                if taken == 0 {
                    heads.expect_content(*contents.next().expect("one more head than contents"));
                }
            }
        }
        heads.end(&mut seen);
        (seen, lines)
    }

    #[test]
    fn targets_are_taken_out_unchanged_and_contents_pass() {
        let bytes =
            b"\r\nPUT /<a>`\xe9?\"{}|^ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /\
            POST http://u@[::1]:8/#x HTTP/1.0\nTransfer-Encoding: chunked\n\n\
            5;x=\"y\"\r\nGET /\r\n0\r\nX: y\r\n\r\n\
            OPTIONS * HTTP/1.1\r\n\r\n\
            GET /\\%zz HTTP/1.1\r\n\r\n";
        let contents =
            [ContentFraming::Length(5), ContentFraming::Chunked, ContentFraming::Length(0)];
        for piece in [1, 2, 3, 7, 50, 1000] {
            let (seen, lines) = through(bytes, piece, &contents);
            let expected: &[u8] = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /\
                POST / HTTP/1.0\r\nTransfer-Encoding: chunked\n\n\
                5;x=\"y\"\r\nGET /\r\n0\r\nX: y\r\n\r\n\
                OPTIONS / HTTP/1.1\r\n\r\n\
                GET / HTTP/1.1\r\n\r\n";
            assert_eq!(seen, expected, "{}", String::from_utf8_lossy(&seen));
            let targets: Vec<_> = lines.into_iter().map(Result::unwrap).collect();
            let expected: [&[u8]; 4] =
                [b"/<a>`\xe9?\"{}|^", b"http://u@[::1]:8/#x", b"*", b"/\\%zz"];
            assert_eq!(targets, expected);
        }
    }

    #[test]
    fn invalid_request_lines_are_told_apart_and_replaced_for_hyper() {
        for (line, error) in [
            (&b"GET /a b HTTP/1.1\r\n"[..], LineError::Byte(b' ')),
            (b"GET /a\tb HTTP/1.1\r\n", LineError::Byte(b'\t')),
            (b"GET /a\0 HTTP/1.1\r\n", LineError::Byte(0)),
            (b"GET /a\rb HTTP/1.1\r\n", LineError::Byte(b'\r')),
            (b"GET /\x7f HTTP/1.1\r\n", LineError::Byte(0x7f)),
            (b"GET  / HTTP/1.1\r\n", LineError::Byte(b' ')),
            (b"GET /\r\n", LineError::NotHttp),
            (b"GET / \r\n", LineError::NotHttp),
            (b"GET  HTTP/1.1\r\n", LineError::NotHttp),
            (b" / HTTP/1.1\r\n", LineError::NotHttp),
            (b"G(T / HTTP/1.1\r\n", LineError::NotHttp),
            (b"\x16\x03\x01\x02\x00", LineError::NotHttp),
            (b"\x04\x01\x00\x50\n", LineError::NotHttp),
            (b"Host: a\r\n", LineError::NotHttp),
            (b"GET / HTTP/1.2\r\n", LineError::Version),
            (b"PRI * HTTP/2.0\r\n", LineError::Version),
            (b"GET / HTTP/1.1 \r\n", LineError::NotHttp),
            (b"GET / http/1.1\r\n", LineError::NotHttp),
        ] {
            let bytes = [line, b"Host: a\r\n\r\nGET /hidden HTTP/1.1\r\n\r\n"].concat();
            let (seen, lines) = through(&bytes, 1000, &[]);
            assert_eq!(lines, [Err(error)], "{}", String::from_utf8_lossy(line));
            assert_eq!(seen, REPLACEMENT);
        }
        let long = vec![b'a'; MAX_LINE + 1];
        assert_eq!(through(&long, 4096, &[]).1, [Err(LineError::Long)]);
        let fits = [&b"GET /"[..], &long[..MAX_LINE - 30], b" HTTP/1.1\r\n"].concat();
        assert!(through(&fits, 4096, &[]).1[0].is_ok());
    }

    #[test]
    fn the_end_of_chunks_is_found_however_they_are_cut() {
        for (bytes, ends) in [
            (&b"0\r\n\r\nGET"[..], Some(5)),
            (b"1\r\na\r\n00\r\n\r\nX", Some(12)),
            (b"A\r\n0123456789\r\n0\r\n\r\n", Some(20)),
            (b"0\r\nX: \r\nY:\r\n\r\nG", Some(14)),
            (b"0\n\nG", Some(3)),
            (b"2\r\nabc\r\n0\r\n\r\n", None),
            (b"fffffffffffffffff\r\na", None),
            (b"5\r\nab", None),
        ] {
            for piece in 1..=bytes.len() {
                let (mut chunks, mut passed) = (Chunks::default(), 0);
                for piece in bytes.chunks(piece) {
                    passed += chunks.pass(piece);
                }
                assert_eq!(chunks.is_over().then_some(passed), ends, "{bytes:?} by {piece}");
            }
        }
    }

    proptest! {
        /// All bytes are taken, and no target holds a line end.
        #[test]
        fn arbitrary_bytes_are_followed(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\r'), Just(b'\n'), Just(b' '), Just(b'0'), any::<u8>()], 0..200),
            piece in 1..20usize,
        ) {
            let contents = vec![ContentFraming::Chunked; bytes.len()];
            let (seen, lines) = through(&bytes, piece, &contents);
            prop_assert!(seen.len() <= bytes.len() + REPLACEMENT.len() + lines.len() * 2);
            for line in lines.into_iter().flatten() {
                prop_assert!(line.iter().all(|b| *b > b' ' && *b != 0x7f));
            }
        }
    }
}
