//! Where streams of bytes go: standard output, or memory.

use std::{
    io::{self, Write as _},
    sync::{Mutex, PoisonError},
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

/// Memory, up to a bound.
pub struct Buffer {
    bytes: Mutex<Vec<u8>>,
    max: usize,
}

impl Buffer {
    /// Empty, for `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { bytes: Mutex::default(), max }
    }

    /// What was written.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Output for Buffer {
    fn write(&self, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.len() + data.len() > self.max {
            return Err(io::Error::other(format!("it is longer than {} bytes", self.max)));
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
