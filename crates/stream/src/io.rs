//! The two directions of a leg, over a channel or a local socket.

use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};
use thalweg_base::timeout::within;
use thalweg_net::TcpInfo;
use thalweg_wire::stream::leg::{
    Answer, FrameHead, HEAD, Head, MAX_ANSWER, MAX_OPENING, Opening, Said, decode, encode, length,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, split};

/// For each step of the opening: five round trips of the slowest path.
const STEP: Duration = Duration::from_secs(10);

/// What may lie in the kernel and is not yet on its way: a few packets, so that what is sent is chosen at the last
/// moment. Below it the kernel says that there is room.
const UNSENT: u32 = 16 << 10;

/// One read: a large frame in a few.
const BUFFER: usize = 64 << 10;

/// Memory for a frame is taken in such pieces at first: its length is another's word.
const PIECE: usize = 64 << 10;

/// What comes.
pub struct Hear(BufReader<Box<dyn AsyncRead + Send + Unpin>>);

/// What goes.
pub struct Say(Box<dyn AsyncWrite + Send + Unpin>);

/// A connection, after or before its opening.
pub struct Leg {
    /// What comes.
    pub hear: Hear,
    /// What goes.
    pub say: Say,
    /// The TCP connection beneath, for its counters; none on local sockets and bonds.
    pub socket: Option<OwnedFd>,
}

/// What a parent sends.
#[derive(Debug)]
pub enum Incoming {
    /// A frame.
    Frame(FrameHead, Bytes),
    /// A message.
    Said(Said),
}

impl Leg {
    /// Over this connection; `socket`: the TCP connection beneath it.
    pub fn new<IO>(io: IO, socket: Option<OwnedFd>) -> Self
    where
        IO: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        if let Some(socket) = &socket {
            // Without the option more waits where nothing can be left out any more; frames go all the same.
            _ = socket2::SockRef::from(socket).set_tcp_notsent_lowat(UNSENT);
        }
        let (hear, say) = split(io);
        let hear = Hear(BufReader::with_capacity(BUFFER, Box::new(hear)));
        Self { hear, say: Say(Box::new(say)), socket }
    }

    /// Says what the channel is to be, and hears the answer.
    ///
    /// # Errors
    /// The connection's.
    pub async fn open(&mut self, opening: &Opening) -> io::Result<Answer> {
        within(STEP, "answer", async {
            self.say.message(opening).await?;
            let answer: Answer = self.hear.message(MAX_ANSWER).await?;
            if answer.is_sound() {
                Ok(answer.cut())
            } else {
                Err(invalid("an answer out of bounds"))
            }
        })
        .await
    }

    /// Hears what the channel is to be.
    ///
    /// # Errors
    /// The connection's.
    pub async fn opening(&mut self) -> io::Result<Opening> {
        within(STEP, "opening", self.hear.message(MAX_OPENING)).await
    }

    /// Answers.
    ///
    /// # Errors
    /// The connection's.
    pub async fn answer(&mut self, answer: &Answer) -> io::Result<()> {
        within(STEP, "room for an answer", self.say.message(answer)).await
    }
}

/// A second handle of a socket, for its counters.
pub fn handle(socket: impl AsFd) -> Option<OwnedFd> {
    socket.as_fd().try_clone_to_owned().ok()
}

/// Half of a connection's round trip, as the shortest of late was; none known: zero.
pub fn half_rtt(socket: Option<&OwnedFd>) -> Duration {
    let info = socket.and_then(|socket| TcpInfo::of(socket).ok());
    let least = info.map_or(Duration::ZERO, |info| info.min_rtt);
    if least == Duration::MAX { Duration::ZERO } else { least / 2 }
}

impl Hear {
    /// The next message of at most `most` bytes. Not to be dropped half way.
    ///
    /// # Errors
    /// The connection's; `InvalidData` for what is no message.
    pub async fn message<T: DeserializeOwned>(&mut self, most: usize) -> io::Result<T> {
        let mut head = [0; 4];
        self.0.read_exact(&mut head).await?;
        let length = length(head, most).map_err(invalid)?;
        decode(&self.bytes(length).await?).map_err(invalid)
    }

    /// What a parent sends next. Not to be dropped half way.
    ///
    /// # Errors
    /// As [`Self::message`].
    pub async fn incoming(&mut self) -> io::Result<Incoming> {
        let mut head = [0; HEAD];
        self.0.read_exact(&mut head).await?;
        match Head::decode(&head).map_err(invalid)? {
            Head::Frame(head) => {
                Ok(Incoming::Frame(head, self.bytes(head.length as usize).await?.into()))
            }
            Head::Message(length) => {
                let said: Said = decode(&self.bytes(length as usize).await?).map_err(invalid)?;
                if said.is_sound() {
                    Ok(Incoming::Said(said))
                } else {
                    Err(invalid("a message out of bounds"))
                }
            }
        }
    }

    /// So many bytes; the caller has a bound.
    ///
    /// # Errors
    /// The connection's.
    pub async fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length.min(PIECE));
        (&mut self.0).take(length as u64).read_to_end(&mut bytes).await?;
        if bytes.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
    }
}

impl Say {
    /// Sends the beginning of these bytes, as much as the connection takes at once; how much. May be dropped.
    ///
    /// # Errors
    /// The connection's.
    pub async fn some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes).await? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            n => Ok(n),
        }
    }

    /// Sends bytes, and keeps none back.
    ///
    /// # Errors
    /// The connection's.
    pub async fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await?;
        self.0.flush().await
    }

    /// Nothing stays behind in this process. May be dropped.
    ///
    /// # Errors
    /// The connection's.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.0.flush().await
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection's.
    pub async fn message(&mut self, message: &impl Serialize) -> io::Result<()> {
        self.bytes(&encode(message)).await
    }

    /// Nothing more goes.
    pub async fn close(&mut self) {
        // The other end learns it from the connection's end as well.
        _ = tokio::time::timeout(Duration::from_secs(1), self.0.shutdown()).await;
    }
}

/// An error of the peer's.
pub fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
