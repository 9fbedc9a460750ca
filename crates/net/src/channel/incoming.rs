//! Bytes that were read off a connection and are not yet handed to TLS, record by record.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, ReadBuf};

/// The header of a TLS record (RFC 8446 §5.1): type, version, length.
pub(super) const HEADER: usize = 5;

/// The longest record: header, 2^14 bytes, their type and an expansion of 256 (RFC 8446 §5.2).
pub(super) const MAX_RECORD: usize = HEADER + (1 << 14) + 256;

/// Bytes that one read asks for: three whole records and a part, held while there is something to do.
const READ: usize = 64 * 1024;

/// What was read and not yet taken. Holds no memory while it is empty.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Incoming {
    /// The bytes.
    pub fn held(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The first bytes' length as a record, if all of one is there.
    ///
    /// # Errors
    /// `InvalidData`: they begin no TLS record.
    pub fn record(&self) -> io::Result<Option<usize>> {
        let &[kind, major, _, high, low, ..] = self.held() else { return Ok(None) };
        let length = HEADER + usize::from(u16::from_be_bytes([high, low]));
        if !(20..=23).contains(&kind) || major != 3 || length > MAX_RECORD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no TLS record was received"));
        }
        Ok((length <= self.held().len()).then_some(length))
    }

    /// Takes `n` bytes off the front.
    pub fn consume(&mut self, n: usize) {
        self.start += n;
    }

    /// Reads more; 0 at the connection's end.
    pub fn poll_fill<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut room = ReadBuf::new(&mut self.bytes[self.end..]);
        let polled = Pin::new(io).poll_read(cx, &mut room);
        let n = room.filled().len();
        if polled.is_pending() && self.start == self.end {
            self.bytes = Vec::new();
            (self.start, self.end) = (0, 0);
        }
        ready!(polled)?;
        self.end += n;
        Poll::Ready(Ok(n))
    }

    /// Moves what is held to the front of a buffer with room for a whole record.
    fn make_room(&mut self) {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.bytes.len() < READ {
            self.bytes.resize(READ, 0);
        }
    }
}
