//! Outputs for streams of bytes: standard output, pipes and devices, memory.

use parking_lot::Mutex;
use std::{
    fmt,
    fs::File,
    io::{self, Write as _},
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
};
use thalweg_get::Output;

/// Standard output.
pub struct Stdout;

impl Output for Stdout {
    fn write(&self, data: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(data).and_then(|()| out.flush())
    }
}

/// A named pipe or device: written in order, never replaced.
pub struct Special {
    path: PathBuf,
    /// Opened when the first bytes arrive, because opening a pipe waits for its reader.
    file: Mutex<Option<File>>,
}

impl Special {
    /// Returns the pipe or device at `path`; `None` for anything else. Links are followed.
    pub fn at(path: &Path) -> Option<Self> {
        let kind = std::fs::metadata(path).ok()?.file_type();
        let is_special = kind.is_char_device() || kind.is_fifo() || kind.is_block_device();
        is_special.then(|| Self { path: path.to_owned(), file: Mutex::default() })
    }
}

impl Output for Special {
    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn write(&self, data: &[u8]) -> io::Result<()> {
        let mut file = self.file.lock();
        let written = match &mut *file {
            Some(file) => file.write_all(data),
            none => File::options()
                .write(true)
                .open(&self.path)
                .and_then(|opened| none.insert(opened).write_all(data)),
        };
        let path = self.path.clone();
        written.map_err(|why| io::Error::new(why.kind(), Unwritable { path, why }))
    }
}

/// A failed write to a pipe or device.
#[derive(Debug)]
pub struct Unwritable {
    path: PathBuf,
    why: io::Error,
}

impl fmt::Display for Unwritable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for Unwritable {}

/// Memory, up to a limit.
pub struct Buffer {
    bytes: Mutex<Vec<u8>>,
    max: usize,
}

impl Buffer {
    /// Creates an empty buffer for at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { bytes: Mutex::default(), max }
    }

    /// Takes the bytes written so far.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.bytes.lock())
    }
}

impl Output for Buffer {
    fn write(&self, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.lock();
        if bytes.len() + data.len() > self.max {
            return Err(io::Error::other(format!(
                "the document is longer than {} bytes",
                self.max
            )));
        }
        bytes.extend_from_slice(data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_bounded() {
        let buffer = Buffer::new(3);
        buffer.write(b"ab").unwrap();
        assert!(buffer.write(b"cd").is_err());
        buffer.write(b"c").unwrap();
        assert_eq!(buffer.take(), b"abc");
    }
}
