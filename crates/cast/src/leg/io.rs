//! The two directions of a channel, sealed or open, and the first words on it.

use serde::{Serialize, de::DeserializeOwned};
use std::{
    future::poll_fn,
    io::{self, Cursor, IoSlice},
    os::fd::{AsFd as _, OwnedFd},
    pin::Pin,
    task::Poll,
    time::Duration,
};
use thalweg_base::timeout::within;
use thalweg_fountain::Shared;
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
};

/// For each step of the opening: five round trips of the slowest path, and a disk that is busy.
const STEP: Duration = Duration::from_secs(20);

/// Nothing is written for so long: the other end is gone.
const STUCK: Duration = Duration::from_secs(60);

/// What is read at once: sixteen symbols, a turn of 0.2 ms at 10 Gbit/s.
const BUFFER: usize = 256 * 1024;

/// What comes.
pub struct Hear(BufReader<Box<dyn AsyncRead + Send + Unpin>>);

/// What goes.
pub struct Say(Box<dyn AsyncWrite + Send + Unpin>);

/// A channel after its opening.
pub struct Leg {
    /// What comes.
    pub hear: Hear,
    /// What goes.
    pub say: Say,
    beneath: Beneath,
}

/// What a leg goes by, for its round trip.
#[derive(Debug)]
enum Beneath {
    /// A connection, whose counters say.
    Socket(OwnedFd),
    /// A bond, as it was when the leg began.
    Bond(Option<Duration>),
}

impl std::fmt::Debug for Leg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Leg({:?})", self.beneath)
    }
}

impl Leg {
    fn sealed<IO>(channel: Channel<IO>, beneath: Beneath) -> Self
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (hear, say) = split(channel);
        Self { hear: Hear::of(Box::new(hear)), say: Say(Box::new(say)), beneath }
    }

    /// `early`: what was read off it already.
    fn clear(tcp: TcpStream, early: Vec<u8>, beneath: Beneath) -> Self {
        let (hear, say) = tcp.into_split();
        let hear = Cursor::new(early).chain(hear);
        Self { hear: Hear::of(Box::new(hear)), say: Say(Box::new(say)), beneath }
    }

    /// The same of what is no TCP connection.
    fn carried(stream: Stream, early: Vec<u8>, beneath: Beneath) -> Self {
        let (hear, say) = split(stream);
        let hear = Cursor::new(early).chain(hear);
        Self { hear: Hear::of(Box::new(hear)), say: Say(Box::new(say)), beneath }
    }

    /// The smallest round trip that the kernel has seen, or that of a bond's best link, if one is known.
    pub fn round_trip(&self) -> Option<Duration> {
        let known = match &self.beneath {
            Beneath::Socket(socket) => TcpInfo::of(socket).ok()?.min_rtt,
            Beneath::Bond(known) => (*known)?,
        };
        Some(known).filter(|known| !known.is_zero() && *known < Duration::MAX)
    }
}

impl Hear {
    fn of(read: Box<dyn AsyncRead + Send + Unpin>) -> Self {
        Self(BufReader::with_capacity(BUFFER, read))
    }

    /// The next message of at most `most` bytes. Not to be dropped half way.
    ///
    /// # Errors
    /// The connection's; `InvalidData` for what is no message.
    pub async fn message<T: DeserializeOwned>(&mut self, most: usize) -> io::Result<T> {
        let mut head = [0; 4];
        self.0.read_exact(&mut head).await?;
        let length = length(head, most).map_err(invalid)?;
        self.body(length).await
    }

    /// A message without its length.
    ///
    /// # Errors
    /// As [`Hear::message`].
    pub async fn body<T: DeserializeOwned>(&mut self, length: usize) -> io::Result<T> {
        decode(&self.bytes(length).await?).map_err(invalid)
    }

    /// Waits for a byte; may be dropped at any time.
    ///
    /// # Errors
    /// The connection's; `UnexpectedEof` at its end.
    pub async fn ready(&mut self) -> io::Result<()> {
        match self.0.fill_buf().await? {
            [] => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// The head of the next frame.
    ///
    /// # Errors
    /// As [`Hear::message`].
    pub async fn frame(&mut self) -> io::Result<Frame> {
        let mut head = [0; FRAME_HEAD];
        self.0.read_exact(&mut head).await?;
        Frame::decode(head).map_err(invalid)
    }

    /// So many bytes; the caller has a bound.
    ///
    /// # Errors
    /// I/O errors of the connection.
    pub async fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        // Allocated as it comes: a length is another's word.
        let mut bytes = Vec::with_capacity(length.min(1 << 20));
        (&mut self.0).take(length as u64).read_to_end(&mut bytes).await?;
        if bytes.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }
}

impl Hear {
    /// A symbol behind its frame's head, as it is handed on.
    ///
    /// # Errors
    /// I/O errors of the connection.
    pub async fn framed(&mut self, head: SymbolHead) -> io::Result<Vec<u8>> {
        // At most 64 KiB: `Frame::decode`.
        let mut frame = Vec::with_capacity(FRAME_HEAD + head.length as usize);
        frame.extend(Frame::Symbol(head).encode());
        (&mut self.0).take(head.length.into()).read_to_end(&mut frame).await?;
        let is_whole = frame.len() == FRAME_HEAD + head.length as usize;
        if is_whole { Ok(frame) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl Say {
    /// Whether several pieces go by one call of the system.
    pub fn takes_several(&self) -> bool {
        self.0.is_write_vectored()
    }

    /// Sends what there is when the connection has room, each piece from where on is said, as much as it
    /// takes at once; how much, or `None` if there is nothing. It is asked for again whenever there is
    /// room, and each time told how much was taken, without a wait in between.
    ///
    /// # Errors
    /// As [`Say::message`].
    pub async fn offered(
        &mut self,
        mut offer: impl FnMut() -> Vec<(Shared, usize)>,
        mut took: impl FnMut(usize),
    ) -> io::Result<Option<usize>> {
        let writing = poll_fn(|cx| {
            let pieces = offer();
            if pieces.is_empty() {
                return Poll::Ready(Ok(None));
            }
            let rests = pieces.iter().map(|(bytes, at)| bytes.get(*at..).unwrap_or_default());
            let slices: Vec<IoSlice<'_>> = rests.map(IoSlice::new).collect();
            let written = Pin::new(&mut self.0).poll_write_vectored(cx, &slices);
            took(if let Poll::Ready(Ok(n)) = &written { *n } else { 0 });
            written.map_ok(Some)
        });
        match within(STUCK, "room for what is to be sent", writing).await? {
            Some(0) => Err(io::ErrorKind::WriteZero.into()),
            taken => Ok(taken),
        }
    }

    /// Sends the beginning of these bytes, as much as the connection takes at once; how much.
    ///
    /// # Errors
    /// As [`Say::message`].
    pub async fn some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match within(STUCK, "room for what is to be sent", self.0.write(bytes)).await? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            n => Ok(n),
        }
    }

    /// Nothing stays behind in this process.
    ///
    /// # Errors
    /// As [`Say::message`].
    pub async fn flush(&mut self) -> io::Result<()> {
        within(STUCK, "room for what is to be sent", self.0.flush()).await
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection's; that it takes nothing for a minute.
    pub async fn message(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.bytes(&encode(message)).await
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// As [`Say::message`].
    pub async fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.some(rest).await?;
            rest = rest.get(taken..).unwrap_or_default();
        }
        self.flush().await
    }

    /// Nothing more goes.
    pub async fn close(&mut self) {
        // The other end learns it from the connection's end as well.
        _ = tokio::time::timeout(Duration::from_secs(1), self.0.shutdown()).await;
    }
}

pub fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Says what a channel is to be, and hears whether it may.
///
/// # Errors
/// The connection's; within it the other end's refusal.
pub async fn open(
    mut channel: Channel<Stream>,
    opening: &Opening,
) -> io::Result<Result<Leg, Refusal>> {
    let stream = channel.get_ref();
    let beneath = match stream.tcp() {
        Some(tcp) => Beneath::Socket(tcp.as_fd().try_clone_to_owned()?),
        None => Beneath::Bond(stream.round_trip()),
    };
    let greeting = async {
        channel.write_all(&encode(opening)).await?;
        channel.flush().await?;
        read::<Answer>(&mut channel, MAX_ANSWER).await
    };
    match within(STEP, "answer", greeting).await?.cut() {
        Answer::Refused(why) => Ok(Err(why)),
        Answer::Accepted { open: false } => Ok(Ok(Leg::sealed(channel, beneath))),
        Answer::Accepted { open: true } => {
            let cutting = async { cut_over(channel).await.map_err(io::Error::other) };
            let (stream, early) = within(STEP, "GO", cutting).await?;
            Ok(Ok(match stream.into_tcp() {
                Ok(tcp) => Leg::clear(tcp, early, beneath),
                Err(stream) => Leg::carried(stream, early, beneath),
            }))
        }
    }
}

/// Hears what a channel is to be.
///
/// # Errors
/// I/O errors of the connection.
pub async fn opening(channel: &mut Channel<TcpStream>) -> io::Result<Opening> {
    within(STEP, "opening", read(channel, MAX_OPENING)).await
}

/// Accepts it; `as_open`: TLS ends.
///
/// # Errors
/// The connection's; a peer that does otherwise than agreed.
pub async fn accept(mut channel: Channel<TcpStream>, as_open: bool) -> io::Result<Leg> {
    let beneath = Beneath::Socket(channel.get_ref().as_fd().try_clone_to_owned()?);
    let mut answer = encode(&Answer::Accepted { open: as_open });
    answer.extend(as_open.then_some(GO));
    let agreeing = within(STEP, "GO-ACK", async {
        channel.write_all(&answer).await?;
        channel.flush().await?;
        if as_open { channel.read_u8().await } else { Ok(GO_ACK) }
    });
    match agreeing.await? {
        GO_ACK if as_open => {
            let (tcp, early) = channel.into_clear()?;
            Ok(Leg::clear(tcp, early, beneath))
        }
        GO_ACK => Ok(Leg::sealed(channel, beneath)),
        _ => Err(invalid("another byte than GO-ACK")),
    }
}

/// Says no.
///
/// # Errors
/// I/O errors of the connection.
pub async fn refuse(mut channel: Channel<TcpStream>, why: Refusal) -> io::Result<()> {
    within(STEP, "room for an answer", async {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::io::duplex;

    #[tokio::test]
    async fn what_goes_is_asked_for_anew_once_there_is_room() {
        let (ours, mut theirs) = duplex(10);
        let (mut say, mut told) = (Say(Box::new(ours)), Vec::new());
        let piece = |text: &str| Arc::new(text.as_bytes().to_vec());
        assert!(say.takes_several());
        let two = || vec![(piece("--ab"), 2), (piece("cdefghijklm"), 0)];
        let taken = say.offered(two, |n| told.push(n)).await.unwrap();
        assert_eq!((taken, &told[..]), (Some(10), &[10][..]));
        // No room: what is offered then was not taken, and is something else when there is.
        let mut words = ["old", "new"].into_iter();
        let next = || words.next().map(|word| (piece(word), 0)).into_iter().collect();
        let mut got = [0; 10];
        let (taken, read) =
            tokio::join!(say.offered(next, |n| told.push(n)), theirs.read_exact(&mut got));
        assert_eq!((taken.unwrap(), read.unwrap(), &got), (Some(3), 10, b"abcdefghij"));
        assert_eq!(told, [10, 0, 3]);
        let mut got = [0; 3];
        theirs.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"new");
        assert_eq!(say.offered(Vec::new, |_| unreachable!()).await.unwrap(), None);
    }
}
