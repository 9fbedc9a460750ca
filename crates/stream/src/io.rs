//! The reading and writing half of a leg, over a channel or a local socket.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use thalweg_base::timeout::within;
use thalweg_net::TcpInfo;
use thalweg_wire::stream::leg::{
    Answer, Ending, FrameHead, HEAD, Head, MAX_ANSWER, MAX_OPENING, Opening, ParentMessage, decode,
    encode, length,
};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
    split,
};

/// The timeout of each step of the opening: five round trips of the slowest path.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// The time in which the peer of a leg that ends reads what it was sent and closes the connection.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// `TCP_NOTSENT_LOWAT`: a few packets, so that frames are dropped as late as possible. The kernel reports the socket
/// as writable while it holds fewer unsent bytes.
const MAX_UNSENT: u32 = 16 << 10;

/// The size of the read buffer: a large frame takes a few reads.
const BUFFER: usize = 64 << 10;

/// The memory first allocated for a frame, because the peer's length is not trusted.
const PIECE: usize = 64 << 10;

/// The reading half of a leg.
pub struct LegReader {
    from: BufReader<Box<dyn AsyncRead + Send + Unpin>>,
    /// The longest pause within an item.
    patience: Option<Duration>,
    received: Arc<AtomicU64>,
}

/// The writing half of a leg.
pub struct LegWriter(Box<dyn AsyncWrite + Send + Unpin>);

/// A connection between a parent and a child, before or after its opening.
pub struct Leg {
    /// The reading half.
    pub reader: LegReader,
    /// The writing half.
    pub writer: LegWriter,
    /// The underlying TCP connection, for its statistics; `None` on local sockets and bonds.
    pub socket: Option<OwnedFd>,
}

/// A frame or message from a parent.
#[derive(Debug)]
pub enum IncomingItem {
    Frame(FrameHead, Bytes),
    Message(ParentMessage),
}

impl IncomingItem {
    /// The number of frames and notices of lost frames, at least 1: each of them costs work on every leg.
    pub fn frames(&self) -> usize {
        match self {
            Self::Message(ParentMessage::Lost(lost)) => lost.len().max(1),
            Self::Frame(..) | Self::Message(_) => 1,
        }
    }
}

impl Leg {
    /// Creates a leg over this connection; `socket` is the underlying TCP connection.
    pub fn new<IO>(io: IO, socket: Option<OwnedFd>) -> Self
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        if let Some(socket) = &socket {
            // Without the option more data is queued in the kernel, where it cannot be dropped.
            _ = socket2::SockRef::from(socket).set_tcp_notsent_lowat(MAX_UNSENT);
        }
        let (reader, writer) = split(io);
        let from: BufReader<Box<dyn AsyncRead + Send + Unpin>> =
            BufReader::with_capacity(BUFFER, Box::new(reader));
        let reader = LegReader { from, patience: None, received: Arc::default() };
        Self { reader, writer: LegWriter(Box::new(writer)), socket }
    }

    /// Sends the opening and reads the answer.
    ///
    /// # Errors
    /// When the connection fails or the answer is out of bounds.
    pub async fn open(&mut self, opening: &Opening) -> io::Result<Answer> {
        within(
            STEP_TIMEOUT,
            "progress while sending the opening",
            self.writer.write_message(opening),
        )
        .await?;
        self.read_answer().await
    }

    /// Reads the answer to an opening.
    ///
    /// # Errors
    /// If the connection fails or the answer is out of bounds.
    pub async fn read_answer(&mut self) -> io::Result<Answer> {
        let answer: Answer =
            within(STEP_TIMEOUT, "answer", self.reader.read_message(MAX_ANSWER)).await?;
        match answer.is_sound() {
            true => Ok(answer.cut()),
            false => Err(invalid_data("the answer exceeds the limits of the protocol")),
        }
    }

    /// Reads the opening.
    ///
    /// # Errors
    /// When the connection fails or the message is malformed.
    pub async fn read_opening(&mut self) -> io::Result<Opening> {
        within(STEP_TIMEOUT, "opening", self.reader.read_message(MAX_OPENING)).await
    }

    /// Sends the answer.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn send_answer(&mut self, answer: &Answer) -> io::Result<()> {
        within(STEP_TIMEOUT, "progress while sending the answer", self.writer.write_message(answer))
            .await
    }
}

/// Sends the reason why the leg ends, and waits until the peer closes the connection. A connection that is closed while
/// a message of the peer is unread is reset (RFC 1122 §4.2.2.13), and the peer may lose the last frames and the reason.
pub async fn end_leg(reader: &mut LegReader, writer: &mut LegWriter, why: &Ending) {
    let ending = async {
        writer.write_all(&Head::encode_message(&ParentMessage::End(why.clone()))).await?;
        writer.close().await;
        reader.discard().await;
        io::Result::Ok(())
    };
    // A peer that does not read this sees the connection end.
    _ = tokio::time::timeout(END_TIMEOUT, ending).await;
}

/// Duplicates a socket's descriptor, for its statistics.
pub fn duplicate(socket: impl AsFd) -> Option<OwnedFd> {
    socket.as_fd().try_clone_to_owned().ok()
}

/// Half of the connection's minimum round trip; zero if unknown.
pub fn half_rtt(socket: Option<&OwnedFd>) -> Duration {
    let info = socket.and_then(|socket| TcpInfo::of(socket).ok());
    let least = info.map_or(Duration::ZERO, |info| info.min_rtt);
    if least == Duration::MAX { Duration::ZERO } else { least / 2 }
}

impl LegReader {
    /// Sets the longest pause within an item, after which reading fails. A slow item may take longer in total.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = Some(patience);
    }

    /// The number of received bytes, including those of an incomplete item.
    pub fn received(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received)
    }

    /// Waits for the beginning of the next item, for as long as that takes. Cancel-safe.
    ///
    /// # Errors
    /// When the connection fails or is closed.
    pub async fn wait(&mut self) -> io::Result<()> {
        match self.from.fill_buf().await?.is_empty() {
            true => Err(io::ErrorKind::UnexpectedEof.into()),
            false => Ok(()),
        }
    }

    /// Reads the next message, of at most `max_length` bytes. Not cancel-safe.
    ///
    /// # Errors
    /// When the connection fails; `InvalidData` if the message is malformed.
    pub async fn read_message<T: DeserializeOwned>(&mut self, max_length: usize) -> io::Result<T> {
        let mut head = [0; 4];
        self.read_exact(&mut head).await?;
        let length = length(head, max_length).map_err(invalid_data)?;
        decode(&self.read_bytes(length).await?).map_err(invalid_data)
    }

    /// Reads the next frame or message of a parent. Not cancel-safe.
    ///
    /// # Errors
    /// As [`Self::read_message`].
    pub async fn read_item(&mut self) -> io::Result<IncomingItem> {
        let mut head = [0; HEAD];
        self.read_exact(&mut head).await?;
        match Head::decode(&head).map_err(invalid_data)? {
            Head::Frame(head) => {
                Ok(IncomingItem::Frame(head, self.read_bytes(head.length as usize).await?.into()))
            }
            Head::Message(length) => {
                let message: ParentMessage =
                    decode(&self.read_bytes(length as usize).await?).map_err(invalid_data)?;
                if message.is_sound() {
                    Ok(IncomingItem::Message(message))
                } else {
                    Err(invalid_data("a message exceeds the limits of the protocol"))
                }
            }
        }
    }

    /// Reads `length` bytes; the caller has checked the bound.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn read_bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while bytes.len() < length {
            let left = length - bytes.len();
            bytes.reserve(left.min(PIECE.max(bytes.len())));
            let reading = async { (&mut self.from).take(left as u64).read_buf(&mut bytes).await };
            let count = read_within(self.patience, reading).await?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.received.fetch_add(count as u64, Ordering::Relaxed);
        }
        Ok(bytes)
    }

    /// Reads until the peer closes the connection, or it fails.
    async fn discard(&mut self) {
        while let Ok(bytes) = self.from.fill_buf().await
            && !bytes.is_empty()
        {
            let count = bytes.len();
            self.from.consume(count);
        }
    }

    async fn read_exact(&mut self, into: &mut [u8]) -> io::Result<()> {
        let count = read_within(self.patience, self.from.read_exact(into)).await?;
        self.received.fetch_add(count as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// Reads with a timeout of `patience`, if there is one.
async fn read_within<T>(
    patience: Option<Duration>,
    reading: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match patience {
        Some(patience) => within(patience, "data from the peer", reading).await,
        None => reading.await,
    }
}

impl LegWriter {
    /// Writes as many of these bytes as the connection accepts at once, and returns how many. Cancel-safe.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes).await? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            n => Ok(n),
        }
    }

    /// Writes all bytes and flushes.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }

    /// Flushes all buffers of this process. Cancel-safe.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.0.flush().await
    }

    /// Writes a message and flushes.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn write_message(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.write_all(&encode(message)).await
    }

    /// Shuts down the writing half.
    pub async fn close(&mut self) {
        // If this fails, the peer sees the end of the connection.
        _ = tokio::time::timeout(Duration::from_secs(1), self.0.shutdown()).await;
    }
}

/// An error caused by the peer's data.
pub fn invalid_data(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
