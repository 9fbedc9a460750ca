//! Chunks (RFC 9112 §7.1) whose lines end in LF alone, with CR LF instead.

/// Follows chunks and writes their lines with CR LF.
#[derive(Default)]
pub(super) struct ChunkLines {
    next: Next,
    /// The line that has begun.
    line: Vec<u8>,
}

#[derive(Default)]
enum Next {
    #[default]
    Size,
    /// So many bytes of the chunk's data.
    Data(u64),
    /// The line end behind the data.
    DataEnd,
    Trailer,
}

impl ChunkLines {
    /// Longer lines are passed on as they are.
    pub(super) const LONGEST_LINE: usize = 16 << 10;

    /// Writes what `bytes` mean; false once the rest is to be passed on as it comes: behind the last chunk, or because
    /// these are no chunks.
    pub(super) fn read(&mut self, mut bytes: &[u8], output: &mut Vec<u8>) -> bool {
        while let Some(first) = bytes.first() {
            if let Next::Data(left) = self.next {
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                let (data, rest) = bytes.split_at(n);
                output.extend_from_slice(data);
                let left = left - n as u64;
                self.next = if left == 0 { Next::DataEnd } else { Next::Data(left) };
                bytes = rest;
                continue;
            }
            bytes = &bytes[1..];
            self.line.push(*first);
            let is_done = match first {
                b'\n' => !self.line_ends(output),
                _ => self.line.len() > Self::LONGEST_LINE,
            };
            if is_done {
                output.append(&mut self.line);
                output.extend_from_slice(bytes);
                return false;
            }
        }
        true
    }

    /// Writes the line that is complete; false if it ends the chunks, or is none of theirs.
    fn line_ends(&mut self, output: &mut Vec<u8>) -> bool {
        let text = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let next = match &self.next {
            Next::Size => match size(text) {
                Some(0) => Next::Trailer,
                Some(n) => Next::Data(n),
                None => return false,
            },
            Next::DataEnd if text.is_empty() => Next::Size,
            Next::DataEnd | Next::Data(_) => return false,
            Next::Trailer => Next::Trailer,
        };
        let is_last = matches!(self.next, Next::Trailer) && text.is_empty();
        output.extend_from_slice(text);
        output.extend_from_slice(b"\r\n");
        self.line.clear();
        self.next = next;
        !is_last
    }
}

/// The size in a chunk's line, before blanks and extensions.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|b| matches!(b, b';' | b' ' | b'\t')).next()?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
