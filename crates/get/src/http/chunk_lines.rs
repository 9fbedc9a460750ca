//! Rewrites chunked bodies (RFC 9112 §7.1) for hyper: lines end in CR LF, and trailers are removed.

/// Parses chunks, writes their lines with CR LF, and removes the trailers after the last chunk. A body is complete once
/// its last chunk has been received (RFC 9112 §8); trailers are not used, and may be malformed or cut.
#[derive(Default)]
pub(super) struct ChunkLines {
    next: ChunkPosition,
    /// The incomplete current line.
    line: Vec<u8>,
    /// Bytes of trailers that were removed.
    trailers: usize,
    is_odd: bool,
}

#[derive(Default)]
enum ChunkPosition {
    #[default]
    Size,
    /// This many bytes of the chunk's data are left.
    Data(u64),
    /// The line end after the data.
    DataEnd,
    Trailer,
}

impl ChunkLines {
    /// Longer lines are passed on unchanged.
    const LONGEST_LINE: usize = 16 << 10;

    /// The most bytes of trailers that are removed, the same bound as for a head.
    const MAX_TRAILERS: usize = super::READ_AT_ONCE;

    /// Whether a line ended in LF alone or a trailer was removed.
    pub(super) fn is_odd(&self) -> bool {
        self.is_odd
    }

    /// Writes `bytes` with corrected lines. Returns false if the rest must be passed on unchanged: after the end of the
    /// body, or because the input is not chunked.
    pub(super) fn read(&mut self, mut bytes: &[u8], output: &mut Vec<u8>) -> bool {
        while let Some(first) = bytes.first() {
            if let ChunkPosition::Data(left) = self.next {
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let (data, rest) = bytes.split_at(n);
                output.extend_from_slice(data);
                let left = left - n as u64;
                self.next =
                    if left == 0 { ChunkPosition::DataEnd } else { ChunkPosition::Data(left) };
                bytes = rest;
                continue;
            }
            bytes = &bytes[1..];
            self.line.push(*first);
            let is_done = match first {
                b'\n' => !self.line_ends(output),
                _ => self.line.len() > self.longest_line(),
            };
            if is_done {
                output.append(&mut self.line);
                output.extend_from_slice(bytes);
                return false;
            }
        }
        true
    }

    fn longest_line(&self) -> usize {
        match self.next {
            ChunkPosition::Trailer => Self::MAX_TRAILERS - self.trailers,
            _ => Self::LONGEST_LINE,
        }
    }

    /// Writes the complete line, or removes it. Returns false if it ends the body or is not part of a chunk.
    fn line_ends(&mut self, output: &mut Vec<u8>) -> bool {
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let text = line.strip_suffix(b"\r").unwrap_or(line);
        self.is_odd |= text.len() == line.len();
        let next = match &self.next {
            ChunkPosition::Size => match size(text) {
                Some(0) => ChunkPosition::Trailer,
                Some(n) => ChunkPosition::Data(n),
                None => return false,
            },
            ChunkPosition::DataEnd if text.is_empty() => ChunkPosition::Size,
            ChunkPosition::DataEnd | ChunkPosition::Data(_) => return false,
            ChunkPosition::Trailer => {
                let is_last = text.is_empty();
                self.is_odd |= !is_last;
                self.trailers = (self.trailers + self.line.len()).min(Self::MAX_TRAILERS);
                self.line.clear();
                return !is_last;
            }
        };
        output.extend_from_slice(text);
        let is_last_chunk = matches!(next, ChunkPosition::Trailer);
        output.extend_from_slice(if is_last_chunk { b"\r\n\r\n" } else { b"\r\n" });
        self.line.clear();
        self.next = next;
        true
    }
}

/// The size in a chunk's first line; spaces and extensions are ignored.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|b| matches!(b, b';' | b' ' | b'\t')).next()?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
