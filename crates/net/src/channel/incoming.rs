//! The read buffer between a connection and TLS, which hands bytes on record by record.

use std::{
    cell::RefCell,
    io, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, ReadBuf};

/// The header of a TLS record (RFC 8446 §5.1): type, version, length.
pub(super) const HEADER: usize = 5;

/// The longest record: header, 2^14 bytes, their type and an expansion of 256 (RFC 8446 §5.2).
pub(super) const MAX_RECORD: usize = HEADER + (1 << 14) + 256;

/// The length of a buffer: one read gives up to three whole records and a part of the next.
const ROOM: usize = 64 * 1024;

/// The length of a buffer before the peer is authenticated. It holds any handshake that nodes send, and limits the
/// memory that a stranger can occupy.
const SMALL: usize = 4 * 1024;

/// Buffers of [`ROOM`] bytes that a thread keeps for the next read of any of its channels.
///
/// They let a channel that waits for bytes hold no buffer, and the next read need not zero one. Four suffice: a thread
/// fills one buffer at a time, and few stay half read.
const SPARE: usize = 4;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The bytes that were read and not yet taken. Holds no memory while it is empty and waits.
#[derive(Debug)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    small: bool,
}

impl Incoming {
    /// Creates a buffer for a handshake, which stays small until [`Self::grow`].
    pub fn small() -> Self {
        Self { bytes: Vec::new(), start: 0, end: 0, small: true }
    }

    /// Allows large reads from now on.
    pub fn grow(&mut self) {
        self.small = false;
    }

    /// The bytes that were received and not yet consumed.
    pub fn held(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The length of the first record, or `None` if it is not complete yet.
    ///
    /// # Errors
    /// `InvalidData` if the bytes do not begin a TLS record.
    pub fn record(&self) -> io::Result<Option<usize>> {
        let &[kind, major, _, high, low, ..] = self.held() else { return Ok(None) };
        let length = HEADER + usize::from(u16::from_be_bytes([high, low]));
        if !(20..=23).contains(&kind) || major != 3 || length > MAX_RECORD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "no TLS record was received"));
        }
        Ok((length <= self.held().len()).then_some(length))
    }

    /// Removes the first `n` bytes.
    pub fn consume(&mut self, n: usize) {
        self.start += n;
    }

    /// Reads more bytes. Returns 0 at the end of the connection.
    pub fn poll_fill<IO: AsyncRead + Unpin>(
        &mut self,
        io: &mut IO,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        self.make_room();
        let mut room = ReadBuf::new(&mut self.bytes[self.end..]);
        let polled = Pin::new(io).poll_read(cx, &mut room);
        let n = room.filled().len();
        self.end += n;
        if polled.is_pending() && self.held().is_empty() {
            self.release();
        }
        ready!(polled)?;
        Poll::Ready(Ok(n))
    }

    /// Returns the buffer to the thread's spare buffers.
    fn release(&mut self) {
        let bytes = mem::take(&mut self.bytes);
        (self.start, self.end) = (0, 0);
        if bytes.len() != ROOM {
            return;
        }
        // A thread that ends has no spare buffers any more.
        let _ = BUFFERS.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE {
                spare.push(bytes);
            }
        });
    }

    /// Moves the held bytes to the front of a buffer with room for more. A small buffer that is full is replaced by a
    /// large one, because its record is longer.
    fn make_room(&mut self) {
        let held = self.start..self.end;
        let length = if self.small && held.len() < SMALL { SMALL } else { ROOM };
        if self.bytes.len() >= length {
            self.bytes.copy_within(held.clone(), 0);
        } else {
            let spare = if length == ROOM { BUFFERS.with_borrow_mut(Vec::pop) } else { None };
            let mut bytes = spare.unwrap_or_else(|| vec![0; length]);
            bytes[..held.len()].copy_from_slice(self.held());
            self.bytes = bytes;
        }
        (self.start, self.end) = (0, held.len());
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.release();
    }
}
