//! From a disk to a channel: what is next is read while what is there is sent.

use super::session::within;
use std::{io, mem};
use thalweg_net::channel::Channel;
use thalweg_wire::object::{self, Reply};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    task::{JoinHandle, spawn_blocking},
};

/// What is read and sent at once: at 1 Gbit/s 500 turns a second, each some ten microseconds.
pub(super) const CHUNK: usize = 256 * 1024;

/// Something that is sent in several turns; it does system calls that may wait for a disk.
pub(super) trait Source: Send + 'static {
    /// Puts what is next into the buffer until that is full; whether there is more to come.
    fn fill(&mut self, buffer: &mut Buffer) -> bool;
}

/// A reply's bytes. A failure's text can hold a whole request, escaped: only its begin is sent.
pub(super) fn message(reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Failed(_) => object::encode(&reply.clone().cut()),
        reply => object::encode(reply),
    }
}

/// Bytes that are about to be sent; its memory is used again and again.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
}

impl Buffer {
    /// How many more bytes it takes.
    pub fn room(&self) -> usize {
        CHUNK.saturating_sub(self.filled)
    }

    /// Appends a message; one goes over the buffer's size if need be.
    pub fn reply(&mut self, reply: &Reply) {
        let message = message(reply);
        self.extend_to(self.filled + message.len());
        self.bytes[self.filled..][..message.len()].copy_from_slice(&message);
        self.filled += message.len();
    }

    /// Place for so many bytes, not more than [`Self::room`]; what is in it is not cleared.
    pub fn place(&mut self, bytes: usize) -> &mut [u8] {
        self.extend_to(self.filled + bytes);
        &mut self.bytes[self.filled..][..bytes]
    }

    /// So many bytes of the place are right.
    pub fn advance(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    /// Appends so many zeros.
    pub fn zeros(&mut self, bytes: usize) {
        self.place(bytes).fill(0);
        self.advance(bytes);
    }

    fn extend_to(&mut self, length: usize) {
        if self.bytes.len() < length {
            // Once: it does not grow byte by byte, nor is it cleared anew for each use.
            let whole = length.max(if length > 4096 { CHUNK } else { 4096 });
            self.bytes.resize(whole, 0);
        }
    }
}

/// The two buffers of a channel, kept from one request to the next.
pub(super) type Buffers = [Buffer; 2];

/// Sends all of it; gives the source back, and how many bytes went.
pub(super) async fn pour<S: Source>(
    channel: &mut Channel<TcpStream>,
    source: S,
    buffers: &mut Buffers,
) -> io::Result<(S, u64)> {
    let ([first, mut spare], mut sent) = (mem::take(buffers), 0);
    let mut ahead = read_ahead(source, first);
    loop {
        let (source, mut full, more) = ahead.await.map_err(io::Error::other)?;
        sent += full.filled as u64;
        if !more {
            within(channel.write_all(&full.bytes[..full.filled])).await?;
            within(channel.flush()).await?;
            full.filled = 0;
            *buffers = [full, spare];
            return Ok((source, sent));
        }
        ahead = read_ahead(source, mem::take(&mut spare));
        within(channel.write_all(&full.bytes[..full.filled])).await?;
        if full.filled < CHUNK {
            // It may be long until there is more.
            within(channel.flush()).await?;
        }
        full.filled = 0;
        spare = full;
    }
}

fn read_ahead<S: Source>(mut source: S, mut buffer: Buffer) -> JoinHandle<(S, Buffer, bool)> {
    spawn_blocking(move || {
        let more = source.fill(&mut buffer);
        (source, buffer, more)
    })
}
