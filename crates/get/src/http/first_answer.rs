//! Rewrites the first answer of an HTTP/1 connection where hyper would refuse what curl and wget accept.
//!
//! hyper alone decides where an answer ends. Malformed status lines, lengths and line ends are replaced by their
//! meaning before hyper reads them; such a connection serves only this answer. Later answers of a connection are not
//! rewritten: if hyper refuses one, the request is repeated on a new connection.

use super::chunk_lines::ChunkLines;
use parking_lot::Mutex;
use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The most bytes of a head, the same bound as hyper's.
const MAX_HEAD: usize = super::READ_AT_ONCE;

/// The number of bytes of an unreadable answer that are shown.
const SHOWN: usize = 60;

/// The largest file length: the system uses 63 bits.
const LONGEST: u64 = i64::MAX as u64;

/// Observations about a connection's first answer.
#[derive(Debug, Default)]
pub(super) struct Notes {
    is_single: AtomicBool,
    began: Mutex<Vec<u8>>,
    bad_length: Mutex<Option<String>>,
}

impl Notes {
    /// Whether the connection serves only one answer: the server speaks HTTP/1.0, or its answer was rewritten.
    pub(super) fn is_single(&self) -> bool {
        self.is_single.load(Ordering::Relaxed)
    }

    /// The first bytes of the answer, at most 60.
    pub(super) fn began(&self) -> Vec<u8> {
        self.began.lock().clone()
    }

    /// The invalid `Content-Length` of the answer, if it has one.
    pub(super) fn bad_length(&self) -> Option<String> {
        self.bad_length.lock().clone()
    }
}

/// Takes received bytes and returns the bytes for hyper.
#[derive(Default)]
pub(super) struct FirstAnswer {
    stage: RewriteStage,
    /// Received bytes that are not processed yet.
    input: Vec<u8>,
    /// The start of the incomplete line of the head.
    line: usize,
    notes: Arc<Notes>,
}

#[derive(Default)]
enum RewriteStage {
    /// Reads the head, up to an empty line.
    #[default]
    Head,
    Chunks(ChunkLines),
    /// Passes all bytes on unchanged.
    Through,
}

impl FirstAnswer {
    /// Creates one that passes all bytes on unchanged.
    pub(super) fn through() -> Self {
        Self { stage: RewriteStage::Through, ..Self::default() }
    }

    pub(super) fn notes(&self) -> Arc<Notes> {
        Arc::clone(&self.notes)
    }

    /// Whether received bytes may go to hyper directly.
    pub(super) fn is_through(&self) -> bool {
        matches!(self.stage, RewriteStage::Through)
    }

    /// The next bytes for hyper; empty if more input is needed. Empty `bytes` mean that the connection has ended.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.note_beginning(bytes);
        self.input.extend_from_slice(bytes);
        if bytes.is_empty() {
            self.stage = RewriteStage::Through;
        }
        let mut output = Vec::new();
        while self.step(&mut output) {}
        output
    }

    /// Performs one step. Returns false if more input is needed.
    fn step(&mut self, output: &mut Vec<u8>) -> bool {
        match &mut self.stage {
            RewriteStage::Head => self.head(output),
            RewriteStage::Chunks(lines) => {
                let goes_on = lines.read(&self.input, output);
                self.input.clear();
                if lines.is_odd() {
                    self.notes.is_single.store(true, Ordering::Relaxed);
                }
                if !goes_on {
                    self.stage = RewriteStage::Through;
                }
                false
            }
            RewriteStage::Through => {
                output.append(&mut self.input);
                false
            }
        }
    }

    fn head(&mut self, output: &mut Vec<u8>) -> bool {
        if !may_be_http(&self.input) {
            self.stage = RewriteStage::Through;
            return true;
        }
        let Some(end) = self.head_end() else {
            if self.input.len() <= MAX_HEAD {
                return false;
            }
            self.stage = RewriteStage::Through;
            return true;
        };
        let rest = self.input.split_off(end);
        let head = mem::replace(&mut self.input, rest);
        self.line = 0;
        let read = Head::read(&head);
        self.stage = match read.as_ref().map(|head| (head.status, head.is_chunked)) {
            None | Some((101, _)) => RewriteStage::Through,
            Some((100..200, _)) => RewriteStage::Head,
            Some((_, true)) => RewriteStage::Chunks(ChunkLines::default()),
            Some((_, false)) => RewriteStage::Through,
        };
        match read {
            Some(Head { mended: Some(mended), bad_length: None, .. }) => {
                self.notes.is_single.store(true, Ordering::Relaxed);
                output.extend(mended);
            }
            Some(Head { bad_length, .. }) => {
                *self.notes.bad_length.lock() = bad_length;
                output.extend(head);
            }
            None => output.extend(head),
        }
        true
    }

    /// The end of the head, once it is complete.
    fn head_end(&mut self) -> Option<usize> {
        let first = self.input.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        self.line = self.line.max(first);
        while let Some(n) = self.input[self.line..].iter().position(|b| *b == b'\n') {
            let is_empty = matches!(&self.input[self.line..self.line + n], b"" | b"\r");
            self.line += n + 1;
            if is_empty {
                return Some(self.line);
            }
        }
        None
    }

    fn note_beginning(&self, bytes: &[u8]) {
        let mut began = self.notes.began.lock();
        let room = SHOWN.saturating_sub(began.len());
        began.extend_from_slice(&bytes[..room.min(bytes.len())]);
    }
}

const PROTOCOL: &[u8] = b"HTTP/";

/// Whether a status line may begin with these bytes; empty lines before it are skipped (RFC 9112 §2.2).
fn may_be_http(bytes: &[u8]) -> bool {
    let first = bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
    let n = (bytes.len() - first).min(PROTOCOL.len());
    bytes[first..first + n].eq_ignore_ascii_case(&PROTOCOL[..n])
}

/// A parsed head.
struct Head {
    status: u16,
    is_chunked: bool,
    /// The corrected head for hyper.
    mended: Option<Vec<u8>>,
    /// An invalid value of `Content-Length`.
    bad_length: Option<String>,
}

/// A field with its folded lines (RFC 9112 §5.2) and their line ends.
struct Field<'a> {
    raw: &'a [u8],
    name: String,
    value: String,
}

impl Head {
    /// Parses a complete head; `None` if its first line is not a status line.
    fn read(head: &[u8]) -> Option<Self> {
        let blank = head.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
        let head = &head[blank..];
        let end = head.iter().position(|b| *b == b'\n')? + 1;
        let (status, line) = status_line(&head[..end])?;
        let fields = fields(&head[end..]);
        let codings = codings(&fields);
        let is_chunked = codings.last().is_some_and(|c| c == "chunked");
        let only_chunked = is_chunked && codings.iter().all(|c| c == "chunked");
        let mut mended = line.clone().unwrap_or_else(|| head[..end].to_vec());
        let (mut changed, mut bad_length, mut said) = (line.is_some(), None, false);
        for field in &fields {
            let new = match field.name.as_str() {
                "transfer-encoding" if only_chunked => {
                    let is_first = !mem::replace(&mut said, true);
                    (field.value.trim() != "chunked" || !is_first).then(|| match is_first {
                        true => b"Transfer-Encoding: chunked\r\n".to_vec(),
                        false => Vec::new(),
                    })
                }
                // Chunks determine the end of the body (RFC 9112 §6.3).
                "content-length" if is_chunked => None,
                "content-length" => match length(&field.value) {
                    Ok(length) => length.map(|n| format!("Content-Length: {n}\r\n").into_bytes()),
                    Err(value) => {
                        bad_length = Some(value);
                        None
                    }
                },
                _ => without_controls(field.raw),
            };
            changed |= new.is_some();
            mended.extend_from_slice(new.as_deref().unwrap_or(field.raw));
        }
        mended.extend_from_slice(b"\r\n");
        Some(Self { status, is_chunked, mended: changed.then_some(mended), bad_length })
    }
}

/// Parses a status line. Returns the status, and a strict HTTP/1.1 line if the received one is not strict: other
/// versions, letter case and spaces are accepted as in curl or wget.
fn status_line(line: &[u8]) -> Option<(u16, Option<Vec<u8>>)> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let rest = line.get(PROTOCOL.len()..)?;
    let n = rest.iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
    let (version, rest) = rest.split_at(n);
    let is_version = version.first().is_some_and(u8::is_ascii_digit)
        && version.iter().filter(|b| **b == b'.').count() < 2;
    let blanks = rest.iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    let (blank, rest) = rest.split_at(blanks);
    let (code, reason) = rest.split_at_checked(3)?;
    let is_status = code.iter().all(u8::is_ascii_digit) && code[0] != b'0';
    if !is_version
        || blank.is_empty()
        || !is_status
        || reason.first().is_some_and(u8::is_ascii_digit)
    {
        return None;
    }
    let status = std::str::from_utf8(code).ok()?.parse().ok()?;
    let is_strict = line.starts_with(b"HTTP/1.1 ")
        && blank == b" "
        && (reason.is_empty() || reason[0] == b' ')
        && without_controls(line).is_none();
    let reason = without_controls(reason).unwrap_or_else(|| reason.to_vec());
    let mended = || [b"HTTP/1.1 ", code, b" ", reason.trim_ascii(), b"\r\n"].concat();
    Some((status, (!is_strict).then(mended)))
}

/// The fields of a head that ends with an empty line.
fn fields(mut text: &[u8]) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    loop {
        let end = field_end(text);
        let (raw, rest) = text.split_at(end);
        if raw.trim_ascii().is_empty() {
            return fields;
        }
        let line = String::from_utf8_lossy(raw);
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        fields.push(Field { raw, name, value });
        text = rest;
    }
}

/// The end of the first field, including its folded lines.
fn field_end(text: &[u8]) -> usize {
    let mut end = 0;
    while let Some(n) = text[end..].iter().position(|b| *b == b'\n') {
        end += n + 1;
        if !matches!(text.get(end), Some(b' ' | b'\t')) {
            return end;
        }
    }
    text.len()
}

/// The transfer codings in lower case, without `identity`.
fn codings(fields: &[Field<'_>]) -> Vec<String> {
    let lines = fields.iter().filter(|field| field.name == "transfer-encoding");
    let codings = lines.flat_map(|field| field.value.split(','));
    let codings = codings.map(|c| c.trim().to_ascii_lowercase());
    codings.filter(|c| !c.is_empty() && c != "identity").collect()
}

/// Parses a `Content-Length` that hyper refuses, such as `+5` or `5 bytes`. `None` if hyper accepts the value.
///
/// # Errors
/// The value, if it is not a length or is larger than any file.
fn length(value: &str) -> Result<Option<u64>, String> {
    let bad = || value.chars().take(SHOWN).collect::<String>();
    let is_length = |text: &str| text.parse().is_ok_and(|n: u64| n <= LONGEST);
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mut items = value.split(',').map(str::trim);
    if items.clone().all(is_plain) {
        return if items.all(is_length) { Ok(None) } else { Err(bad()) };
    }
    let text = value.strip_prefix('+').unwrap_or(value);
    let n = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(n);
    // A letter or sign directly after the digits makes the number ambiguous.
    let ends = rest.is_empty() || rest.starts_with([' ', '\t', ';']);
    match digits.parse() {
        Ok(n) if ends && n <= LONGEST => Ok(Some(n)),
        _ => Err(bad()),
    }
}

/// The line with spaces in place of NUL and bare CR (RFC 9110 §5.5, RFC 9112 §2.2); `None` if it has neither.
fn without_controls(line: &[u8]) -> Option<Vec<u8>> {
    let is_bare = |(i, byte): (usize, &u8)| match byte {
        0 => true,
        b'\r' => line.get(i + 1).is_some_and(|next| *next != b'\n'),
        _ => false,
    };
    line.iter().enumerate().any(is_bare).then(|| {
        let blank = |(i, byte)| if is_bare((i, byte)) { b' ' } else { *byte };
        line.iter().enumerate().map(blank).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that hyper gets of `text` in pieces of `step` bytes, and whether the connection serves only this
    /// answer.
    fn read(text: &[u8], step: usize) -> (Vec<u8>, bool) {
        let (mut answer, mut output) = (FirstAnswer::default(), Vec::new());
        text.chunks(step).for_each(|piece| output.extend(answer.read(piece)));
        output.extend(answer.read(&[]));
        (output, answer.notes.is_single())
    }

    fn becomes(text: &str, expected: &str) {
        for step in [1, 2, 7, 1000] {
            let (got, is_single) = read(text.as_bytes(), step);
            assert_eq!(String::from_utf8_lossy(&got), expected, "{step}");
            assert_eq!(is_single, text != expected, "{text:?}");
        }
    }

    #[test]
    fn status_lines_are_rewritten_to_http_1_1() {
        for line in
            ["HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.1 404 Not  Found", "HTTP/1.1 200 d\u{e9}"]
        {
            let text = format!("{line}\r\nA: b\r\n\r\nHTTP/1.0 x");
            becomes(&text, &text);
        }
        for line in [
            "HTTP/1.0 200 OK",
            "HTTP/1 200 OK",
            "HTTP/2 200 OK",
            "HTTP/2.0 200 OK",
            "HTTP/1.2 200 OK",
            "http/1.1 200 OK",
            "HTTP/1.1  200 OK",
            "HTTP/1.1\t200 OK",
            "HTTP/1.1 200OK",
            "HTTP/1.1 200\tOK",
        ] {
            let (text, rest) = (format!("{line}\r\n\r\nbody"), "HTTP/1.1 200 OK\r\n\r\nbody");
            becomes(&text, rest);
        }
        for line in
            ["HTTP/1.1 2000 OK", "HTTP/1.1 20 OK", "HTTP/1.1 ok", "ICY 200 OK", "HTTP/a 200"]
        {
            let text = format!("{line}\r\nContent-Length: +5\r\n\r\nbody");
            becomes(&text, &text);
        }
    }

    #[test]
    fn malformed_fields_are_replaced_by_their_meaning() {
        const OK: &str = "HTTP/1.1 200 OK\r\n";
        const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";
        for (fields, mended) in [
            ("Content-Length: +5\r\n", "Content-Length: 5\r\n"),
            ("Content-Length: 5;x\r\nA: b\r\n", "Content-Length: 5\r\nA: b\r\n"),
            ("Content-Length: 5 bytes\r\n", "Content-Length: 5\r\n"),
            ("Transfer-Encoding: chunked, chunked\r\n", CHUNKED),
            (
                "Transfer-Encoding: chunked\r\nB: c\r\ntransfer-encoding: Chunked\r\n",
                "Transfer-Encoding: chunked\r\nB: c\r\n",
            ),
            ("Transfer-Encoding: identity, chunked\r\n", CHUNKED),
            ("Transfer-Encoding: Chunked ,\r\n", CHUNKED),
            ("A: b\rc\0d\r\n", "A: b c d\r\n"),
        ] {
            becomes(&format!("{OK}{fields}\r\n5\r\n"), &format!("{OK}{mended}\r\n5\r\n"));
        }
        for fields in [
            "Content-Length: 5\r\nContent-Length: 5, 5\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: +5\r\n",
            "Content-Length:\r\n 5\r\n",
            "A: b\r\n c\r\nno colon\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "A: b\nC: d\n",
        ] {
            let text = format!("{OK}{fields}\r\n5\r\n");
            becomes(&text, &text);
        }
    }

    #[test]
    fn invalid_lengths_are_noted() {
        for value in [
            "-5",
            "",
            "x",
            "0x1388",
            "5x",
            "5-6",
            "+",
            "99999999999999999999",
            "9223372036854775808",
            "5, 99999999999999999999",
        ] {
            let mut answer = FirstAnswer::default();
            let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {value}\r\n\r\n");
            assert_eq!(answer.read(text.as_bytes()), text.as_bytes());
            assert_eq!(answer.notes.bad_length().as_deref(), Some(value));
        }
    }

    #[test]
    fn interim_answers_are_rewritten_and_other_bytes_pass_unchanged() {
        becomes(
            "HTTP/1.0 103 Hints\r\nA: b\r\n\r\nHTTP/2 200 OK\r\n\r\nx",
            "HTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\nx",
        );
        for cut in [
            "",
            "HT",
            "HTTP/1.1 200 OK\r\nA: b",
            "SSH-2.0-x\r\n",
            "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        ] {
            becomes(cut, cut);
        }
        let mut answer = FirstAnswer::default();
        assert_eq!(answer.read(b"SSH"), b"SSH", "it would wait for ever");
        assert_eq!(answer.notes.began(), b"SSH");
    }

    #[test]
    fn chunk_lines_are_rewritten_to_end_in_cr_lf() {
        const HEAD: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (body, mended) in [
            ("3\nabc\n0\n\n", "3\r\nabc\r\n0\r\n\r\n"),
            ("3\nabc\r\n0\n\r\n", "3\r\nabc\r\n0\r\n\r\n"),
            (
                "3;x=y\nab\n\nA\n0123456789\n0\nT: u\n\nrest",
                "3;x=y\r\nab\n\r\nA\r\n0123456789\r\n0\r\n\r\nrest",
            ),
            ("3\r\nabc\r\n0\n\n", "3\r\nabc\r\n0\r\n\r\n"),
            ("x\nabc", "x\nabc"),
        ] {
            for step in [1, 3, 1000] {
                let (got, is_single) = read(format!("{HEAD}{body}").as_bytes(), step);
                assert_eq!(String::from_utf8_lossy(&got), format!("{HEAD}{mended}"));
                assert!(is_single);
            }
        }
        let strict = format!("{HEAD}3\r\nabc\r\n0\r\n\r\n");
        becomes(&strict, &strict);
    }

    /// As in curl, except that curl fails at a cut end and at lines without a colon; by RFC 9112 §8 the body is
    /// complete then.
    #[test]
    fn trailers_are_removed() {
        const BODY: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n";
        let many = "A: b\r\n".repeat(10_000);
        for trailers in [
            "A: b\r\n\r\n",
            "A (b): c\r\n\r\n",
            "A : b\r\n\r\n",
            ": b\r\n\r\n",
            "no colon\r\n\r\n",
            " b\r\n\r\n",
            "A: b\r\n c\r\n\r\n",
            "A: b\0c\r\n\r\n",
            "A: b\n\n",
            &format!("{many}\r\n"),
            &format!("A: {many}"),
            "A: b\r\n",
            "A: b",
            "\r",
            "",
        ] {
            for step in [1, 5, 1 << 20] {
                let (got, is_single) = read(format!("{BODY}{trailers}").as_bytes(), step);
                assert_eq!(String::from_utf8_lossy(&got), format!("{BODY}\r\n"), "{trailers:?}");
                assert_eq!(is_single, trailers.contains('\n'), "{trailers:?}");
            }
        }
        let endless = format!("{BODY}{}", "A: b\r\n".repeat(100_000));
        assert!(read(endless.as_bytes(), 1000).0.len() > BODY.len() + 100_000, "it is bounded");
    }
}
