//! Builds the correct answer to a request, and injects faults into it.

use super::{
    fault::{FaultKind, Refusal},
    request::HttpRequest,
    send::ConnectionFate,
    site::Version,
};
use std::ops::Range;

/// The boundary between the parts of a `multipart/byteranges` body.
const BOUNDARY: &str = "thalweg-web-faults";

/// A part of a body.
#[derive(Clone, Debug, PartialEq)]
pub enum BodyPart {
    /// These bytes.
    Bytes(Vec<u8>),
    /// This range of the file.
    File(Range<u64>),
}

impl BodyPart {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(range) => range.end - range.start,
        }
    }

    fn truncate(&mut self, n: u64) {
        match self {
            Self::Bytes(bytes) => bytes.truncate(usize::try_from(n).unwrap_or(usize::MAX)),
            Self::File(range) => range.end = range.end.min(range.start + n),
        }
    }
}

/// An answer, not yet sent.
#[derive(Clone, Debug, PartialEq)]
pub struct HttpAnswer {
    pub status: u16,
    /// Field lines besides Content-Length.
    pub fields: Vec<String>,
    /// The value of Content-Length.
    pub length: u64,
    /// The length of the file.
    file_length: u64,
    /// The body.
    pub pieces: Vec<BodyPart>,
    /// The fate of the connection after the answer.
    pub after: ConnectionFate,
    /// The answer stalls after its pieces: the connection stays open until the client ends it.
    pub stalls: bool,
}

impl HttpAnswer {
    fn new(status: u16, fields: Vec<String>, pieces: Vec<BodyPart>) -> Self {
        let length = pieces.iter().map(BodyPart::len).sum();
        Self {
            status,
            fields,
            length,
            file_length: 0,
            pieces,
            after: ConnectionFate::StaysOpen,
            stalls: false,
        }
    }

    /// Creates the answer for a refusal.
    pub fn from_refusal(refusal: Refusal) -> Self {
        let fields = refusal.retry_after.map(|s| format!("Retry-After: {s}"));
        Self::new(refusal.status, fields.into_iter().collect(), Vec::new())
    }

    /// Creates the answer of a correct server (RFC 9110 §13, §14, §15.3.7).
    pub fn correct(request: &HttpRequest, version: &Version, ignores_ranges: bool) -> Self {
        let mut answer = Self::select(request, version, ignores_ranges);
        answer.file_length = version.length;
        answer
    }

    fn select(request: &HttpRequest, version: &Version, ignores_ranges: bool) -> Self {
        let Version { length, tag, .. } = version;
        let tag = tag.as_deref();
        if request.field("if-match").is_some_and(|wanted| wanted != "*" && Some(wanted) != tag) {
            return Self::new(412, Vec::new(), Vec::new());
        }
        let mut fields: Vec<String> = tag.iter().map(|tag| format!("ETag: {tag}")).collect();
        let same = request.field("if-range").is_none_or(|wanted| Some(wanted) == tag);
        let ranges = request.ranges(*length).filter(|_| same && !ignores_ranges);
        match ranges.as_deref() {
            None => Self::new(200, fields, vec![BodyPart::File(0..*length)]),
            Some([]) => {
                Self::new(416, vec![format!("Content-Range: bytes */{length}")], Vec::new())
            }
            Some([one]) => {
                fields.push(content_range(one, *length));
                Self::new(206, fields, vec![BodyPart::File(one.clone())])
            }
            Some(several) => {
                fields.push(format!("Content-Type: multipart/byteranges; boundary={BOUNDARY}"));
                Self::new(206, fields, parts(several, *length))
            }
        }
    }

    /// Injects a fault. Returns `false` if the fault does not apply to this answer.
    pub fn inject(&mut self, kind: FaultKind) -> bool {
        if !matches!(self.status, 200 | 206) {
            return false;
        }
        match kind {
            FaultKind::Length(n) if n < self.length => {
                self.cut(self.length - n);
                self.length -= n;
            }
            FaultKind::Short(n) if n < self.length => {
                self.cut(self.length - n);
                self.after = ConnectionFate::Closes;
            }
            FaultKind::Long(n) => {
                let nonsense = vec![b'?'; usize::try_from(n).unwrap_or(0)];
                self.pieces.push(BodyPart::Bytes(nonsense));
            }
            FaultKind::Reset(_) | FaultKind::Stall(_) => return self.end_at(kind),
            _ => return false,
        }
        true
    }

    fn end_at(&mut self, kind: FaultKind) -> bool {
        let (FaultKind::Reset(at) | FaultKind::Stall(at)) = kind else { return false };
        let Some(n) = self.position_of(at.offset_in(self.file_length)) else { return false };
        self.cut(n);
        self.stalls = matches!(kind, FaultKind::Stall(_));
        self.after = ConnectionFate::Resets;
        true
    }

    /// The position in the body of the byte at offset `at` of the file; `None` if the body does not contain it.
    fn position_of(&self, at: u64) -> Option<u64> {
        let mut before = 0;
        for piece in &self.pieces {
            match piece {
                BodyPart::File(range) if range.contains(&at) => {
                    return Some(before + at - range.start);
                }
                other => before += other.len(),
            }
        }
        None
    }

    /// Keeps only the first `n` bytes of the body.
    fn cut(&mut self, n: u64) {
        let mut left = n;
        for piece in &mut self.pieces {
            piece.truncate(left);
            left -= piece.len();
        }
    }
}

fn content_range(range: &Range<u64>, length: u64) -> String {
    format!("Content-Range: bytes {}-{}/{length}", range.start, range.end - 1)
}

fn parts(ranges: &[Range<u64>], length: u64) -> Vec<BodyPart> {
    let part = |r: &Range<u64>| {
        let head = format!("\r\n--{BOUNDARY}\r\n{}\r\n\r\n", content_range(r, length));
        [BodyPart::Bytes(head.into_bytes()), BodyPart::File(r.clone())]
    };
    let end = format!("\r\n--{BOUNDARY}--\r\n").into_bytes();
    ranges.iter().flat_map(part).chain([BodyPart::Bytes(end)]).collect()
}
