//! The fetching end of a channel `thalweg/object/1`: lists, reads and stores another node's files.
//!
//! [`Remote::open`] opens a channel by a node's name, directly or through relays. A remote makes one request after the
//! other. Several reads can be sent ahead ([`Remote::ask`]), so that there is no round trip between them; their bytes
//! arrive in the order of the requests.

mod error;
mod listing;
mod parts;
mod pending_request;
mod reading;
mod sink;
mod spares;
mod storing;

pub use error::RemoteError;
pub use listing::{ListingPart, MOST_LISTED};

pub use sink::{LandSink, Sink};
pub use spares::{FreshRemote, Spares};
pub use storing::AHEAD as DELIVERIES_AHEAD;

use bytes::Bytes;
use pending_request::PendingRequest;
use std::{collections::VecDeque, io, time::Duration};
use thalweg_mesh::member_dialer::{DialMemberError, MemberDialer};
use thalweg_net::{
    Stream,
    channel::{Channel, Protocol},
};
use thalweg_wire::{
    mesh::Name,
    object::{self, MAX_REPLY, Reply, Request},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, timeout},
};

/// The longest time without a byte from the other end; after it the channel is given up. It is four times the longest
/// silence of a serving node ([`crate`] sends something every 15 s, however long its disk takes).
pub const SILENCE: Duration = Duration::from_secs(60);

/// The most bytes of requests without an answer that were sent ahead. Both ends' socket buffers hold this many, so
/// neither end ever waits for the other to read. Further requests wait at this end.
const AHEAD: usize = 64 * 1024;

/// Bytes that are written at once: even a path of 5 kB/s takes them within [`SILENCE`].
const WRITE_SIZE: usize = 256 * 1024;

/// An open channel to another node's files.
///
/// If the future of a call is dropped before it completes, or ends with [`RemoteError::Lost`], the channel is unusable:
/// all further calls end with [`RemoteError::Lost`] too.
#[derive(Debug)]
pub struct Remote {
    channel: Channel<Stream>,
    node: Name,
    /// Requests that were sent and are not completely answered, the oldest first.
    sent: VecDeque<PendingRequest>,
    /// Requests that were not sent yet, with the bytes that follow them.
    waiting: VecDeque<(PendingRequest, Vec<u8>, Bytes)>,
    /// An exchange has begun and has not ended.
    is_broken: bool,
}

impl Remote {
    /// Opens a channel to the files of `node` through these relays, the nearest to this host first; directly if there
    /// are none.
    ///
    /// # Errors
    /// [`DialMemberError`].
    pub async fn open(
        dialer: &MemberDialer,
        node: &Name,
        via: &[Name],
    ) -> Result<Self, DialMemberError> {
        let channel = dialer.channel(node, via, Protocol::Object).await?;
        Ok(Self::new(channel, node.clone()))
    }

    fn new(channel: Channel<Stream>, node: Name) -> Self {
        let (sent, waiting) = (VecDeque::new(), VecDeque::new());
        Self { channel, node, sent, waiting, is_broken: false }
    }

    /// The node whose files these are.
    pub fn node(&self) -> &Name {
        &self.node
    }

    /// The underlying connection; only its route and counters may be used.
    pub fn stream(&self) -> &Stream {
        self.channel.get_ref()
    }

    /// Whether the channel can still be used.
    pub fn is_usable(&self) -> bool {
        !self.is_broken
    }

    /// The number of requests without a complete answer.
    pub fn outstanding(&self) -> usize {
        self.sent.len() + self.waiting.len()
    }

    /// Sends a request, or holds it until earlier ones are answered. The caller must receive its answer in its turn
    /// ([`Remote::receive`], [`Remote::receive_all`], [`Remote::reply`]).
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn ask(&mut self, request: &Request) -> Result<(), RemoteError> {
        self.ask_with(request, Bytes::new()).await
    }

    /// Sends a request followed by the bytes of a `Store`. The other end reads these before it sends anything, so they
    /// do not count as sent ahead.
    async fn ask_with(&mut self, request: &Request, bytes: Bytes) -> Result<(), RemoteError> {
        let message = object::encode(request);
        self.waiting.push_back((PendingRequest::new(request, message.len()), message, bytes));
        self.exchange(async |remote| remote.send_waiting().await).await
    }

    /// Sends a request that has one reply, and receives the reply.
    ///
    /// # Errors
    /// [`RemoteError::Refused`] for [`Reply::Failed`], [`RemoteError::Lost`].
    pub async fn request(&mut self, request: &Request) -> Result<Reply, RemoteError> {
        self.ask(request).await?;
        self.reply().await
    }

    /// Receives the reply of the oldest unanswered request, which has one reply.
    ///
    /// # Errors
    /// [`RemoteError::Refused`] for [`Reply::Failed`], [`RemoteError::Lost`].
    pub async fn reply(&mut self) -> Result<Reply, RemoteError> {
        let reply = self.exchange(async |remote| {
            let reply = remote.message().await?;
            remote.answered().await?;
            Ok(reply)
        });
        match reply.await? {
            Reply::Failed(why) => Err(RemoteError::Refused { node: self.node.clone(), why }),
            reply => Ok(reply),
        }
    }

    /// Closes the channel properly. A remote that is just dropped resets the connection.
    pub async fn close(mut self) {
        // Best effort: the other end also learns it from the end of the connection.
        _ = timeout(Duration::from_secs(1), self.channel.shutdown()).await;
    }

    /// Runs a step of the conversation. If it fails or is dropped, the channel becomes unusable.
    async fn exchange<T>(
        &mut self,
        part: impl AsyncFnOnce(&mut Self) -> io::Result<T>,
    ) -> Result<T, RemoteError> {
        if self.is_broken {
            let why = io::Error::other("an earlier transfer on this connection was interrupted");
            return Err(self.lost(why));
        }
        self.is_broken = true;
        let done = part(self).await;
        self.is_broken = done.is_err();
        done.map_err(|why| self.lost(why))
    }

    fn lost(&self, why: io::Error) -> RemoteError {
        RemoteError::lost(&self.node, self.stream().route(), why)
    }

    /// Marks the oldest request as completely answered, and sends requests that waited for this.
    async fn answered(&mut self) -> io::Result<()> {
        self.sent.pop_front();
        self.send_waiting().await
    }

    async fn send_waiting(&mut self) -> io::Result<()> {
        let mut any = false;
        while let Some((next, ..)) = self.waiting.front() {
            let ahead: usize = self.sent.iter().map(|asked| asked.length).sum();
            if !self.sent.is_empty() && ahead + next.length > AHEAD {
                break;
            }
            let Some((asked, next, bytes)) = self.waiting.pop_front() else { break };
            self.sent.push_back(asked);
            within(self.channel.write_all(&next)).await?;
            for piece in bytes.chunks(WRITE_SIZE) {
                within(self.channel.write_all(piece)).await?;
            }
            any = true;
        }
        if any { within(self.channel.flush()).await } else { Ok(()) }
    }

    /// Receives the next message other than `Wait`. `Wait` messages are limited by number and time.
    async fn message(&mut self) -> io::Result<Reply> {
        let patience = self.sent.front().map_or(pending_request::PATIENCE, |asked| asked.patience);
        let (began, mut left) =
            (Instant::now(), patience.as_secs() / pending_request::MIN_WAIT_INTERVAL.as_secs());
        loop {
            match self.any_message().await? {
                Reply::Wait if left == 0 || began.elapsed() > patience => {
                    return Err(pending_request::wait_timeout(patience));
                }
                Reply::Wait => left -= 1,
                reply => return Ok(reply),
            }
        }
    }

    async fn any_message(&mut self) -> io::Result<Reply> {
        let mut head = [0; 4];
        within(self.channel.read_exact(&mut head)).await?;
        let length = object::length(head, MAX_REPLY).map_err(invalid)?;
        let mut body = vec![0; length];
        within(self.channel.read_exact(&mut body)).await?;
        object::decode(&body).map(Reply::cut).map_err(invalid)
    }
}

/// Runs a step, which fails if it takes longer than [`SILENCE`].
async fn within<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(SILENCE, step).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("it has sent nothing for {SILENCE:?}"),
        )),
    }
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn unexpected() -> io::Error {
    invalid("the answer does not match the request; do both hosts run the same version?")
}
