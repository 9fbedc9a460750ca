//! The two directions of a channel, sealed or open, and the messages that open it.

use serde::{Serialize, de::DeserializeOwned};
use std::{
    future::poll_fn,
    io::{self, Cursor, IoSlice},
    os::fd::{AsFd as _, OwnedFd},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};
use thalweg_base::{rate_limit::RateLimit, timeout::within};
use thalweg_fountain::SharedBytes;
use thalweg_net::{Stream, TcpInfo, channel::Channel, cut_over};
use thalweg_wire::{
    cast::{
        Answer, FRAME_HEAD, Frame, MAX_ANSWER, MAX_OPENING, Opening, Refusal, SymbolHead, decode,
        encode, length,
    },
    mesh::{GO, GO_ACK},
};
use tokio::{
    io::{
        AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _,
        BufReader, split,
    },
    net::TcpStream,
    time::{Instant, sleep_until},
};

/// Timeout of each step of the opening: allows five round trips of the slowest path, and a busy disk.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// If nothing can be written for this long, the other end is considered gone.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// The receive buffer: sixteen symbols, or 0.2 ms at 10 Gbit/s.
const BUFFER: usize = 256 * 1024;

/// The receiving direction of a channel.
pub struct LegReader(BufReader<Box<dyn AsyncRead + Send + Unpin>>);

/// The sending direction of a channel.
pub struct LegWriter {
    io: Box<dyn AsyncWrite + Send + Unpin>,
    limit: Option<LegLimit>,
}

/// The share of one leg in the limit of all legs.
struct LegLimit {
    limit: Arc<RateLimit>,
    /// When the next bytes may be sent.
    not_before: Instant,
}

/// A channel after its opening.
pub struct Leg {
    pub reader: LegReader,
    pub writer: LegWriter,
    transport: Transport,
}

/// The transport below a leg, from which its round trip is known.
#[derive(Debug)]
enum Transport {
    /// A TCP connection; the kernel measures the round trip.
    Socket(Arc<OwnedFd>),
    /// A bond, with its round trip when the leg began.
    Bond(Option<Duration>),
}

impl std::fmt::Debug for Leg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leg({:?})", self.transport)
    }
}

impl Leg {
    fn sealed<IO>(channel: Channel<IO>, transport: Transport) -> Self
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (reader, writer) = split(channel);
        Self {
            reader: LegReader::new(Box::new(reader)),
            writer: LegWriter::new(Box::new(writer)),
            transport,
        }
    }

    /// An open leg; `early` are the bytes already read from the connection.
    fn clear(tcp: TcpStream, early: Vec<u8>, transport: Transport) -> Self {
        let (reader, writer) = tcp.into_split();
        let reader = Cursor::new(early).chain(reader);
        Self {
            reader: LegReader::new(Box::new(reader)),
            writer: LegWriter::new(Box::new(writer)),
            transport,
        }
    }

    /// Like [`Self::clear`], for a stream that is not a TCP connection.
    fn carried(stream: Stream, early: Vec<u8>, transport: Transport) -> Self {
        let (reader, writer) = split(stream);
        let reader = Cursor::new(early).chain(reader);
        Self {
            reader: LegReader::new(Box::new(reader)),
            writer: LegWriter::new(Box::new(writer)),
            transport,
        }
    }

    /// A function that reads the kernel's counters as long as the leg exists; `None` for a bond.
    pub fn counters(&self) -> Option<impl Fn() -> io::Result<TcpInfo> + Send + use<>> {
        let Transport::Socket(socket) = &self.transport else { return None };
        let socket = Arc::downgrade(socket);
        Some(move || TcpInfo::of(&*socket.upgrade().ok_or(io::ErrorKind::NotConnected)?))
    }

    /// The smallest round trip that the kernel has measured, or that of a bond's best link; `None` if unknown.
    pub fn round_trip(&self) -> Option<Duration> {
        let known = match &self.transport {
            Transport::Socket(socket) => TcpInfo::of(&**socket).ok()?.min_rtt,
            Transport::Bond(known) => (*known)?,
        };
        Some(known).filter(|known| !known.is_zero() && *known < Duration::MAX)
    }
}

impl LegReader {
    fn new(read: Box<dyn AsyncRead + Send + Unpin>) -> Self {
        Self(BufReader::with_capacity(BUFFER, read))
    }

    /// Reads the next message of at most `most` bytes. Not cancel-safe.
    ///
    /// # Errors
    /// I/O errors of the connection; `InvalidData` if the bytes are no message.
    pub async fn read_message<T: DeserializeOwned>(&mut self, most: usize) -> io::Result<T> {
        let mut head = [0; 4];
        self.0.read_exact(&mut head).await?;
        let length = length(head, most).map_err(invalid)?;
        self.read_body(length).await
    }

    /// Reads a message whose length has been read.
    ///
    /// # Errors
    /// As [`LegReader::read_message`].
    pub async fn read_body<T: DeserializeOwned>(&mut self, length: usize) -> io::Result<T> {
        decode(&self.read_bytes(length).await?).map_err(invalid)
    }

    /// Waits until a byte can be read. Cancel-safe.
    ///
    /// # Errors
    /// I/O errors of the connection; `UnexpectedEof` at its end.
    pub async fn wait_readable(&mut self) -> io::Result<()> {
        match self.0.fill_buf().await? {
            [] => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Reads the head of the next frame.
    ///
    /// # Errors
    /// As [`LegReader::read_message`].
    pub async fn read_head(&mut self) -> io::Result<Frame> {
        let mut head = [0; FRAME_HEAD];
        self.0.read_exact(&mut head).await?;
        Frame::decode(head).map_err(invalid)
    }

    /// Reads `length` bytes; the caller must bound the length.
    ///
    /// # Errors
    /// I/O errors of the connection.
    pub async fn read_bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        // Allocates as bytes arrive, because the peer chooses the length.
        let mut bytes = Vec::with_capacity(length.min(1 << 20));
        (&mut self.0).take(length as u64).read_to_end(&mut bytes).await?;
        if bytes.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }
}

impl LegReader {
    /// Reads a symbol after its frame's head. Returns the whole frame, ready to be forwarded.
    ///
    /// # Errors
    /// I/O errors of the connection.
    pub async fn read_symbol(&mut self, head: SymbolHead) -> io::Result<Vec<u8>> {
        // At most 64 KiB: `Frame::decode`.
        let mut frame = Vec::with_capacity(FRAME_HEAD + head.length as usize);
        frame.extend(Frame::Symbol(head).encode());
        (&mut self.0).take(head.length.into()).read_to_end(&mut frame).await?;
        let is_whole = frame.len() == FRAME_HEAD + head.length as usize;
        if is_whole { Ok(frame) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl LegWriter {
    fn new(io: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        Self { io, limit: None }
    }

    /// Limits the rate, together with all other legs of this limit.
    pub fn set_limit(&mut self, limit: Arc<RateLimit>) {
        self.limit = Some(LegLimit { limit, not_before: Instant::now() });
    }

    /// Waits until more may be sent. Returns how many bytes at once. Waiting before a write, and not after it, loses no
    /// count if the future is dropped.
    async fn wait_for_turn(limit: Option<&LegLimit>) -> usize {
        let Some(own) = limit else { return usize::MAX };
        sleep_until(own.not_before).await;
        own.limit.piece()
    }

    /// Charges bytes that were sent.
    fn charge(limit: &mut Option<LegLimit>, n: usize) {
        if let Some(own) = limit {
            own.not_before = Instant::now() + own.limit.charge(n as u64);
        }
    }

    /// Whether several buffers can be written with one system call.
    pub fn takes_several(&self) -> bool {
        self.io.is_write_vectored()
    }

    /// Writes the offered buffers, each from its offset on, as far as the connection takes them at once. Returns the
    /// number of bytes taken, or `None` if nothing is offered. Whenever the connection may have room, `offer` is
    /// called, and then `took` with the number of bytes taken, without an await point in between.
    ///
    /// # Errors
    /// As [`LegWriter::write_message`].
    pub async fn write_offered(
        &mut self,
        mut offer: impl FnMut() -> Vec<(SharedBytes, usize)>,
        mut took: impl FnMut(usize),
    ) -> io::Result<Option<usize>> {
        let most = Self::wait_for_turn(self.limit.as_ref()).await;
        let Self { io, limit } = self;
        let writing = poll_fn(|cx| {
            let pieces = offer();
            if pieces.is_empty() {
                return Poll::Ready(Ok(None));
            }
            let rests = pieces.iter().map(|(bytes, at)| bytes.get(*at..).unwrap_or_default());
            let slices: Vec<IoSlice<'_>> = up_to(rests, most).map(IoSlice::new).collect();
            let written = Pin::new(&mut *io).poll_write_vectored(cx, &slices);
            let taken = if let Poll::Ready(Ok(n)) = &written { *n } else { 0 };
            Self::charge(limit, taken);
            took(taken);
            written.map_ok(Some)
        });
        match within(WRITE_TIMEOUT, "progress in sending", writing).await? {
            Some(0) => Err(io::ErrorKind::WriteZero.into()),
            taken => Ok(taken),
        }
    }

    /// Writes the beginning of `bytes`, as much as the connection takes at once. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`LegWriter::write_message`].
    pub async fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let most = Self::wait_for_turn(self.limit.as_ref()).await;
        let bytes = bytes.get(..most).unwrap_or(bytes);
        match within(WRITE_TIMEOUT, "progress in sending", self.io.write(bytes)).await? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            n => {
                Self::charge(&mut self.limit, n);
                Ok(n)
            }
        }
    }

    /// Flushes buffers of this process.
    ///
    /// # Errors
    /// As [`LegWriter::write_message`].
    pub async fn flush(&mut self) -> io::Result<()> {
        within(WRITE_TIMEOUT, "progress in sending", self.io.flush()).await
    }

    /// Sends a message.
    ///
    /// # Errors
    /// I/O errors of the connection; a timeout if it takes nothing for a minute.
    pub async fn write_message(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.write_bytes(&encode(message)).await
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// As [`LegWriter::write_message`].
    pub async fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.write_some(rest).await?;
            rest = rest.get(taken..).unwrap_or_default();
        }
        self.flush().await
    }

    /// Closes the sending direction.
    pub async fn close(&mut self) {
        // If this fails, the other end notices the end of the connection.
        _ = tokio::time::timeout(Duration::from_secs(1), self.io.shutdown()).await;
    }
}

/// An error for data that breaks the protocol.
pub fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Sends the opening of a channel and reads the answer.
///
/// # Errors
/// I/O errors of the connection; the inner result is the other end's refusal.
pub async fn open(
    mut channel: Channel<Stream>,
    opening: &Opening,
) -> io::Result<Result<Leg, Refusal>> {
    let stream = channel.get_ref();
    let transport = match stream.tcp() {
        Some(tcp) => Transport::Socket(Arc::new(tcp.as_fd().try_clone_to_owned()?)),
        None => Transport::Bond(stream.round_trip()),
    };
    let greeting = async {
        channel.write_all(&encode(opening)).await?;
        channel.flush().await?;
        read::<Answer>(&mut channel, MAX_ANSWER).await
    };
    match within(STEP_TIMEOUT, "answer", greeting).await?.cut() {
        Answer::Refused(why) => Ok(Err(why)),
        Answer::Accepted { open: false } => Ok(Ok(Leg::sealed(channel, transport))),
        Answer::Accepted { open: true } => {
            let cutting = async { cut_over(channel).await.map_err(io::Error::other) };
            let (stream, early) = within(STEP_TIMEOUT, "GO", cutting).await?;
            Ok(Ok(match stream.into_tcp() {
                Ok(tcp) => Leg::clear(tcp, early, transport),
                Err(stream) => Leg::carried(stream, early, transport),
            }))
        }
    }
}

/// Reads the opening of a channel.
///
/// # Errors
/// I/O errors of the connection.
pub async fn read_opening(channel: &mut Channel<TcpStream>) -> io::Result<Opening> {
    within(STEP_TIMEOUT, "opening", read(channel, MAX_OPENING)).await
}

/// Accepts a channel; with `as_open` TLS ends after the handshake.
///
/// # Errors
/// I/O errors of the connection, or a peer that violates the protocol.
pub async fn accept(mut channel: Channel<TcpStream>, as_open: bool) -> io::Result<Leg> {
    let socket = channel.get_ref().as_fd().try_clone_to_owned()?;
    let transport = Transport::Socket(Arc::new(socket));
    let mut answer = encode(&Answer::Accepted { open: as_open });
    answer.extend(as_open.then_some(GO));
    let agreeing = within(STEP_TIMEOUT, "GO-ACK", async {
        channel.write_all(&answer).await?;
        channel.flush().await?;
        if as_open { channel.read_u8().await } else { Ok(GO_ACK) }
    });
    match agreeing.await? {
        GO_ACK if as_open => {
            let (tcp, early) = channel.into_clear()?;
            Ok(Leg::clear(tcp, early, transport))
        }
        GO_ACK => Ok(Leg::sealed(channel, transport)),
        _ => Err(invalid("the peer did not send GO-ACK but another byte")),
    }
}

/// Refuses a channel.
///
/// # Errors
/// I/O errors of the connection.
pub async fn refuse(mut channel: Channel<TcpStream>, why: Refusal) -> io::Result<()> {
    within(STEP_TIMEOUT, "progress in sending the refusal", async {
        channel.write_all(&encode(&Answer::Refused(why.cut()))).await?;
        channel.shutdown().await
    })
    .await
}

async fn read<T: DeserializeOwned>(
    from: &mut (impl AsyncRead + Unpin),
    most: usize,
) -> io::Result<T> {
    let mut head = [0; 4];
    from.read_exact(&mut head).await?;
    let length = length(head, most).map_err(invalid)?;
    let mut body = vec![0; length];
    from.read_exact(&mut body).await?;
    decode(&body).map_err(invalid)
}

/// The buffers up to this many bytes in all.
fn up_to<'a>(
    buffers: impl Iterator<Item = &'a [u8]>,
    most: usize,
) -> impl Iterator<Item = &'a [u8]> {
    let mut left = most;
    buffers.map_while(move |buffer| {
        let part = buffer.get(..left).unwrap_or(buffer);
        let is_next = left > 0;
        left -= part.len();
        is_next.then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn legs_share_a_limit() {
        let limit = Arc::new(RateLimit::new(10.try_into().unwrap()));
        let (ours, mut theirs) = duplex(1 << 20);
        let mut writer = LegWriter::new(Box::new(ours));
        writer.set_limit(Arc::clone(&limit));
        assert_eq!(writer.write_some(&[0; 50_000]).await.unwrap(), 1024, "the smallest piece");
        let piece = Arc::new(vec![0; 1000]);
        let offer = || vec![(Arc::clone(&piece), 0), (Arc::clone(&piece), 100)];
        let taken = writer.write_offered(offer, |_| ()).await.unwrap();
        assert_eq!(taken, Some(1024), "the second one is cut");
        theirs.read_exact(&mut [0; 2048]).await.unwrap();
        assert!(limit.charge(0) > Duration::ZERO, "others wait for these bytes");
    }
    use tokio::io::duplex;

    #[tokio::test]
    async fn pieces_are_offered_again_when_there_is_room() {
        let (ours, mut theirs) = duplex(10);
        let (mut writer, mut written) = (LegWriter::new(Box::new(ours)), Vec::new());
        let piece = |text: &str| Arc::new(text.as_bytes().to_vec());
        assert!(writer.takes_several());
        let two = || vec![(piece("--ab"), 2), (piece("cdefghijklm"), 0)];
        let taken = writer.write_offered(two, |n| written.push(n)).await.unwrap();
        assert_eq!((taken, &written[..]), (Some(10), &[10][..]));
        // No room: these pieces are not taken, and others are offered once there is room.
        let mut words = ["old", "new"].into_iter();
        let next = || words.next().map(|word| (piece(word), 0)).into_iter().collect();
        let mut got = [0; 10];
        let (taken, read) = tokio::join!(
            writer.write_offered(next, |n| written.push(n)),
            theirs.read_exact(&mut got)
        );
        assert_eq!((taken.unwrap(), read.unwrap(), &got), (Some(3), 10, b"abcdefghij"));
        assert_eq!(written, [10, 0, 3]);
        let mut got = [0; 3];
        theirs.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"new");
        assert_eq!(writer.write_offered(Vec::new, |_| unreachable!()).await.unwrap(), None);
    }
}
