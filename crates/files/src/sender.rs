//! Sends data from a disk over a channel: the next chunk is read while the current one is sent.

use super::session::within;
use std::{
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use thalweg_base::{budget::PeerKey, costly};
use thalweg_net::{TcpInfo, channel::Channel};
use thalweg_wire::object::{self, Reply};
use tokio::{
    io::AsyncWriteExt as _,
    net::TcpStream,
    task::{JoinHandle, spawn_blocking},
    time::sleep,
};

/// Bytes that are read and sent at once. At 1 Gbit/s this is 500 chunks a second, each of which costs about ten
/// microseconds.
pub(super) const CHUNK: usize = 256 * 1024;

/// How often to check whether the peer is still connected while the node works for it.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Data that is sent in several turns. Filling a buffer does system calls that may wait for a disk.
pub(super) trait DataSource: Send + 'static {
    /// The peer whose turn each call of [`Self::fill`] takes, if filling costs more than reading the sent bytes.
    fn charged_peer(&self) -> Option<PeerKey> {
        None
    }

    /// Fills the buffer until it is full or the turn ends. Returns whether there is more to send.
    fn fill(&mut self, buffer: &mut Buffer, until: &FillDeadline) -> bool;
}

/// When a call of [`DataSource::fill`] must end: at the end of its turn if the work is costly, and once the peer has
/// left.
#[derive(Debug)]
pub(super) struct FillDeadline {
    end: Option<Instant>,
    left: Arc<AtomicBool>,
}

impl FillDeadline {
    /// Whether the call must end now.
    pub fn is_over(&self) -> bool {
        self.left.load(Ordering::Relaxed) || self.end.is_some_and(|end| Instant::now() >= end)
    }
}

/// Ends the current call of [`DataSource::fill`] when it is dropped.
#[derive(Debug, Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Encodes a reply. A failure's text may contain a whole request, escaped, so only its beginning is sent.
pub(super) fn message(reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Failed(_) => object::encode(&reply.clone().cut()),
        reply => object::encode(reply),
    }
}

/// Bytes that are about to be sent. The memory is reused.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
}

impl Buffer {
    /// Whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// The number of bytes that still fit.
    pub fn room(&self) -> usize {
        CHUNK.saturating_sub(self.filled)
    }

    /// Appends a message; a single one may exceed the buffer's size.
    pub fn append_reply(&mut self, reply: &Reply) {
        let message = message(reply);
        self.extend_to(self.filled + message.len());
        self.bytes[self.filled..][..message.len()].copy_from_slice(&message);
        self.filled += message.len();
    }

    /// Returns space for this many bytes, at most [`Self::room`]. The space is not cleared.
    pub fn reserve(&mut self, bytes: usize) -> &mut [u8] {
        self.extend_to(self.filled + bytes);
        &mut self.bytes[self.filled..][..bytes]
    }

    /// Marks this many bytes of the space as filled.
    pub fn advance(&mut self, bytes: usize) {
        self.filled += bytes;
    }

    /// Appends this many zeros.
    pub fn append_zeros(&mut self, bytes: usize) {
        self.reserve(bytes).fill(0);
        self.advance(bytes);
    }

    fn extend_to(&mut self, length: usize) {
        if self.bytes.len() < length {
            // Grows to the full size at once, so that it neither grows byte by byte nor is cleared for each use.
            let whole = length.max(if length > 4096 { CHUNK } else { 4096 });
            self.bytes.resize(whole, 0);
        }
    }
}

/// The two buffers of a channel, kept from one request to the next.
pub(super) type Buffers = [Buffer; 2];

/// Sends the whole source. Returns it with the number of bytes sent. Stops if the peer leaves.
pub(super) async fn send_source<S: DataSource>(
    channel: &mut Channel<TcpStream>,
    source: S,
    buffers: &mut Buffers,
) -> io::Result<(S, u64)> {
    let leaving = StopOnDrop::default();
    let ([first, mut spare], mut sent) = (mem::take(buffers), 0);
    let mut ahead = read_ahead(source, first, &leaving);
    loop {
        let (source, mut full, more) = tokio::select! {
            biased;
            filled = &mut ahead => filled.map_err(io::Error::other)??,
            () = wait_until_closed(channel.get_ref()) => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        sent += full.filled as u64;
        if !more {
            within(channel.write_all(&full.bytes[..full.filled])).await?;
            within(channel.flush()).await?;
            full.filled = 0;
            *buffers = [full, spare];
            return Ok((source, sent));
        }
        ahead = read_ahead(source, mem::take(&mut spare), &leaving);
        within(channel.write_all(&full.bytes[..full.filled])).await?;
        if full.filled < CHUNK {
            // The next bytes may take long.
            within(channel.flush()).await?;
        }
        full.filled = 0;
        spare = full;
    }
}

/// Completes once the peer has closed the connection, which is otherwise unnoticed while nothing is read.
pub(super) async fn wait_until_closed(tcp: &TcpStream) {
    loop {
        sleep(CHECK_INTERVAL).await;
        if TcpInfo::of(tcp).is_ok_and(|info| info.peer_has_ended) {
            return;
        }
    }
}

fn read_ahead<S: DataSource>(
    mut source: S,
    mut buffer: Buffer,
    leaving: &StopOnDrop,
) -> JoinHandle<io::Result<(S, Buffer, bool)>> {
    let left = Arc::clone(&leaving.0);
    let charged_peer = source.charged_peer();
    let fill = move |end| {
        let more = source.fill(&mut buffer, &FillDeadline { end, left });
        Ok((source, buffer, more))
    };
    match charged_peer {
        None => spawn_blocking(move || fill(None)),
        Some(peer) => tokio::spawn(async move {
            let filling = costly::run(peer, move || fill(Some(Instant::now() + costly::SLICE)));
            filling.await.map_err(io::Error::other)?
        }),
    }
}
