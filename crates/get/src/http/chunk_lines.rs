//! Rewrites the line ends of chunks (RFC 9112 §7.1) from LF to CR LF.

/// Parses chunks and writes their lines with CR LF.
#[derive(Default)]
pub(super) struct ChunkLines {
    next: Next,
    /// The incomplete current line.
    line: Vec<u8>,
}

#[derive(Default)]
enum Next {
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
    pub(super) const LONGEST_LINE: usize = 16 << 10;

    /// Writes `bytes` with corrected line ends. Returns false if the rest must be passed on unchanged: after the last
    /// chunk, or because the input is not chunked.
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

    /// Writes the complete line. Returns false if it ends the body or is not part of a chunk.
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

/// The size in a chunk's first line; spaces and extensions are ignored.
fn size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|b| matches!(b, b';' | b' ' | b'\t')).next()?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
