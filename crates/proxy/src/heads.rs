//! Where the requests on a connection begin, and which targets they name.
//!
//! hyper reads a target into `http::Uri`, which refuses bytes that origins take (`<`, `` ` ``, Latin-1). So the target is
//! taken out of the request line before hyper sees it, as it is, and hyper gets `/` in its place.
//!
//! hyper alone decides what a message is. Nothing behind a head is passed on to it before it has read that head and said
//! which content follows ([`Heads::follows`]); what comes behind a content waits until hyper asks for the next head. The end
//! of a chunked content is found by [`Chunks`]. Where that and hyper disagree, about chunks that are none, a line of content
//! may be altered, or a target with odd bytes be refused; no request comes into being that hyper has not read itself.

use bytes::Bytes;
use thiserror::Error;

/// The longest request line. RFC 9112 §3 recommends 8,000 bytes at least; nginx and Squid take as much, hyper 65,534.
pub const MAX_LINE: usize = 64 << 10;

/// What hyper is given instead of a request line that is refused.
const INSTEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n";

/// A request line that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// Not `METHOD TARGET HTTP/1.1`.
    #[error("this is no HTTP request: it does not begin with a method, a target and HTTP/1.1")]
    NotHttp,
    /// White space or a control character (RFC 9112 §3.2).
    #[error(
        "the request's target has the byte {0:#04x} in it; spaces and control characters must be percent-encoded"
    )]
    Byte(u8),
    /// Another version.
    #[error("this proxy speaks HTTP/1.1 and HTTP/1.0 alone")]
    Version,
    /// Longer than [`MAX_LINE`].
    #[error("the request line is longer than {MAX_LINE} bytes")]
    Long,
}

/// The content that follows a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// So many bytes; 0: none.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// What a request line said: its target, byte for byte.
pub type Line = Result<Bytes, LineError>;

/// Follows a program's bytes. Pure.
#[derive(Debug, Default)]
pub struct Heads {
    at: At,
    /// What there is of the request line.
    line: Vec<u8>,
}

#[derive(Debug, Default)]
enum At {
    /// In a request line, or before it.
    #[default]
    Line,
    /// In the fields; whether the line so far is empty.
    Fields {
        empty: bool,
    },
    /// Behind a head that hyper has yet to read.
    Behind,
    Content(u64),
    Chunks(Chunks),
    /// Nothing more is passed.
    Over,
}

impl Heads {
    /// Takes some of `bytes` and appends what hyper is to see of them to `seen`; how many were taken. None: hyper must have
    /// read the head first. A request line is returned once it is whole.
    pub fn take(&mut self, bytes: &[u8], seen: &mut Vec<u8>) -> (usize, Option<Line>) {
        match &mut self.at {
            At::Line => self.take_line(bytes, seen),
            At::Fields { empty } => {
                let (taken, ended) = fields(bytes, empty);
                seen.extend_from_slice(&bytes[..taken]);
                if ended {
                    self.at = At::Behind;
                }
                (taken, None)
            }
            At::Behind => (0, None),
            At::Content(_) | At::Chunks(_) => {
                let taken = self.passes(bytes);
                seen.extend_from_slice(&bytes[..taken]);
                (taken, None)
            }
            At::Over => (bytes.len(), None),
        }
    }

    fn take_line(&mut self, bytes: &[u8], seen: &mut Vec<u8>) -> (usize, Option<Line>) {
        let end = bytes.iter().position(|b| *b == b'\n');
        let taken = end.map_or(bytes.len(), |end| end + 1);
        self.line.extend_from_slice(&bytes[..taken]);
        let line = match end {
            _ if self.line.len() > MAX_LINE => Err(LineError::Long),
            None if !begins_like_http(&self.line) => Err(LineError::NotHttp),
            None => return (taken, None),
            // Empty lines in front of a request are let pass (RFC 9112 §2.2).
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
            Ok(_) => At::Fields { empty: true },
            Err(_) => {
                seen.extend_from_slice(INSTEAD);
                At::Over
            }
        };
        self.line.clear();
        (taken, Some(line))
    }

    /// What is left of a request line where the program has ended its side: hyper sees it, and refuses it.
    pub fn end(&mut self, seen: &mut Vec<u8>) {
        seen.append(&mut self.line);
    }

    /// hyper has read a head, and this content follows.
    pub fn follows(&mut self, content: Content) {
        // Behind a line that was refused nothing follows.
        if matches!(self.at, At::Behind) {
            self.at = match content {
                Content::Length(0) => At::Line,
                Content::Length(length) => At::Content(length),
                Content::Chunked => At::Chunks(Chunks::default()),
            };
        }
    }

    /// Whether bytes of a content come next, which pass as they are.
    pub fn in_content(&self) -> bool {
        matches!(self.at, At::Content(_) | At::Chunks(_))
    }

    /// Whether part of a head is passed on that hyper has not read yet.
    pub fn in_head(&self) -> bool {
        matches!(self.at, At::Fields { .. } | At::Behind)
    }

    /// Whether nothing is here of a request that is not over.
    pub fn is_between(&self) -> bool {
        matches!(self.at, At::Line) && self.line.is_empty()
    }

    /// Whether nothing more is passed on.
    pub fn is_over(&self) -> bool {
        matches!(self.at, At::Over)
    }

    /// How many of `bytes` belong to the content that is passing.
    pub fn passes(&mut self, bytes: &[u8]) -> usize {
        match &mut self.at {
            At::Content(left) => {
                let passing = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= passing as u64;
                if *left == 0 {
                    self.at = At::Line;
                }
                passing
            }
            At::Chunks(chunks) => {
                let passing = chunks.pass(bytes);
                if chunks.is_over() {
                    self.at = At::Line;
                }
                passing
            }
            _ => 0,
        }
    }
}

/// Fields up to the empty line that ends them: how many bytes, and whether they end there.
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

/// Whether a line may become a request line. What speaks another protocol, as TLS, would else wait for its answer.
fn begins_like_http(line: &[u8]) -> bool {
    matches!(line, b"\r") || line.iter().take_while(|b| **b != b' ').copied().all(is_token)
}

type Parts<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// Method, target and version of a request line with its end (RFC 9112 §3).
fn split(line: &[u8]) -> Result<Parts<'_>, LineError> {
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

/// RFC 9110 §5.6.2.
fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

/// Finds the end of a chunked content (RFC 9112 §7.1), as hyper reads it.
#[derive(Debug, Default)]
struct Chunks {
    at: InChunks,
    size: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum InChunks {
    #[default]
    Size,
    /// Behind the size, to the end of its line.
    Extension,
    Data,
    /// The line end behind a chunk's data.
    DataEnd,
    /// In a line of the trailer section, which may be the empty one.
    Trailer {
        empty: bool,
    },
    Over,
    /// It is none: hyper will say so.
    Broken,
}

impl Chunks {
    fn is_over(&self) -> bool {
        self.at == InChunks::Over
    }

    /// How many of `bytes` belong to the content.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut passed = 0;
        while let Some(rest) = bytes.get(passed..).filter(|rest| !rest.is_empty()) {
            passed += match self.at {
                InChunks::Over => break,
                InChunks::Broken => rest.len(),
                InChunks::Data => self.data(rest.len()),
                _ => self.step(rest[0]),
            };
        }
        passed
    }

    fn data(&mut self, have: usize) -> usize {
        let passing = usize::try_from(self.size).unwrap_or(usize::MAX).min(have);
        self.size -= passing as u64;
        if self.size == 0 {
            self.at = InChunks::DataEnd;
        }
        passing
    }

    /// One byte outside of data.
    fn step(&mut self, byte: u8) -> usize {
        self.at = match (self.at, byte) {
            (InChunks::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                match self.size.checked_mul(16) {
                    Some(size) => {
                        self.size = size | u64::from(digit);
                        InChunks::Size
                    }
                    None => InChunks::Broken,
                }
            }
            (InChunks::Size | InChunks::Extension, b'\n') => match self.size {
                0 => InChunks::Trailer { empty: true },
                _ => InChunks::Data,
            },
            (InChunks::Size | InChunks::Extension, _) => InChunks::Extension,
            (InChunks::DataEnd, b'\r') => InChunks::DataEnd,
            (InChunks::DataEnd, b'\n') => InChunks::Size,
            (InChunks::Trailer { empty: true }, b'\n') => InChunks::Over,
            (InChunks::Trailer { .. }, b'\n') => InChunks::Trailer { empty: true },
            (InChunks::Trailer { empty }, b'\r') => InChunks::Trailer { empty },
            (InChunks::Trailer { .. }, _) => InChunks::Trailer { empty: false },
            (InChunks::DataEnd | InChunks::Data | InChunks::Over | InChunks::Broken, _) => {
                InChunks::Broken
            }
        };
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All that hyper sees of `bytes` that come in pieces of `piece`, and the request lines; `contents` follow the heads.
    fn through(bytes: &[u8], piece: usize, contents: &[Content]) -> (Vec<u8>, Vec<Line>) {
        let (mut heads, mut contents) = (Heads::default(), contents.iter());
        let (mut seen, mut lines) = (Vec::new(), Vec::new());
        for mut rest in bytes.chunks(piece.max(1)) {
            while !rest.is_empty() {
                let (taken, line) = heads.take(rest, &mut seen);
                lines.extend(line);
                rest = &rest[taken..];
                if taken == 0 {
                    heads.follows(*contents.next().expect("one more head than contents"));
                }
            }
        }
        heads.end(&mut seen);
        (seen, lines)
    }

    #[test]
    fn targets_are_taken_out_as_they_are_and_contents_pass() {
        let bytes =
            b"\r\nPUT /<a>`\xe9?\"{}|^ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /\
            POST http://u@[::1]:8/#x HTTP/1.0\nTransfer-Encoding: chunked\n\n\
            5;x=\"y\"\r\nGET /\r\n0\r\nX: y\r\n\r\n\
            OPTIONS * HTTP/1.1\r\n\r\n\
            GET /\\%zz HTTP/1.1\r\n\r\n";
        let contents = [Content::Length(5), Content::Chunked, Content::Length(0)];
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
    fn lines_that_are_none_are_told_apart_and_hyper_sees_another_request() {
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
            assert_eq!(seen, INSTEAD);
        }
        let long = vec![b'a'; MAX_LINE + 1];
        assert_eq!(through(&long, 4096, &[]).1, [Err(LineError::Long)]);
        let fits = [&b"GET /"[..], &long[..MAX_LINE - 30], b" HTTP/1.1\r\n"].concat();
        assert!(through(&fits, 4096, &[]).1[0].is_ok());
    }

    #[test]
    fn chunks_end_where_they_end_however_they_are_cut() {
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
        /// Whatever comes, all of it is taken, and no line end gets into what hyper is told of a line.
        #[test]
        fn arbitrary_bytes_are_followed(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b'\r'), Just(b'\n'), Just(b' '), Just(b'0'), any::<u8>()], 0..200),
            piece in 1..20usize,
        ) {
            let contents = vec![Content::Chunked; bytes.len()];
            let (seen, lines) = through(&bytes, piece, &contents);
            prop_assert!(seen.len() <= bytes.len() + INSTEAD.len() + lines.len() * 2);
            for line in lines.into_iter().flatten() {
                prop_assert!(line.iter().all(|b| *b > b' ' && *b != 0x7f));
            }
        }
    }
}
