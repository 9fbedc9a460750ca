//! The fetching end of a channel `thalweg/object/1`: another node's files.
//!
//! [`Remote::open`] opens a channel by a node's name, directly or through relays. A remote does one
//! request after the other. Several reads can be asked for ahead ([`Remote::ask`]), so that no round
//! trip is waited for between them; their bytes come in the order of the requests.

mod asked;
mod error;
mod listing;
mod parts;
mod reading;
mod sink;
mod spares;
mod storing;

pub use error::RemoteError;
pub use listing::{Listed, MOST_LISTED};

pub use sink::{Sink, ToLand};
pub use spares::{Fresh, Spares};
pub use storing::AHEAD as DELIVERIES_AHEAD;

use asked::Asked;
use bytes::Bytes;
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

/// Without a byte for so long the other end is given up: four times what a serving node may
/// be silent ([`crate`] says something every 15 s, however long its disk takes).
pub const SILENCE: Duration = Duration::from_secs(60);

/// Requests that were sent ahead and have no answer yet have at most so many bytes, so that both
/// ends' sockets hold them and neither end ever waits for the other to read. More wait here.
const AHEAD: usize = 64 * 1024;

/// What is written at once: on a path of 5 kB/s it is gone within [`SILENCE`].
const SENT: usize = 256 * 1024;

/// An open channel to another node's files.
///
/// Whatever future is dropped half way, or ends with [`RemoteError::Lost`], leaves the
/// channel useless: all that follows is [`RemoteError::Lost`] too.
#[derive(Debug)]
pub struct Remote {
    channel: Channel<Stream>,
    node: Name,
    /// Requests that were sent and not wholly answered, the oldest first.
    sent: VecDeque<Asked>,
    /// Requests that wait for their turn, with the bytes that follow them.
    waiting: VecDeque<(Asked, Vec<u8>, Bytes)>,
    /// An exchange was begun and not ended.
    torn: bool,
}

impl Remote {
    /// Opens the files of `node`, through these relays, the nearest to this host first; none: directly.
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
        Self { channel, node, sent, waiting, torn: false }
    }

    /// Whose files.
    pub fn node(&self) -> &Name {
        &self.node
    }

    /// The connection beneath, for its route and counters alone.
    pub fn stream(&self) -> &Stream {
        self.channel.get_ref()
    }

    /// Whether it can still be used.
    pub fn is_whole(&self) -> bool {
        !self.torn
    }

    /// How many requests have no (whole) answer yet.
    pub fn outstanding(&self) -> usize {
        self.sent.len() + self.waiting.len()
    }

    /// Sends a request, or keeps it until earlier ones are answered; its answer is to be
    /// received in its turn ([`Remote::receive`], [`Remote::receive_all`], [`Remote::reply`]).
    ///
    /// # Errors
    /// [`RemoteError::Lost`].
    pub async fn ask(&mut self, request: &Request) -> Result<(), RemoteError> {
        self.ask_with(request, Bytes::new()).await
    }

    /// The same with the bytes of a `Store`. The other end takes them in before it says anything,
    /// so that they do not count among what it must hold.
    async fn ask_with(&mut self, request: &Request, bytes: Bytes) -> Result<(), RemoteError> {
        let message = object::encode(request);
        self.waiting.push_back((Asked::new(request, message.len()), message, bytes));
        self.exchange(async |remote| remote.send_waiting().await).await
    }

    /// One request and its one reply.
    ///
    /// # Errors
    /// [`RemoteError::Refused`] for [`Reply::Failed`], [`RemoteError::Lost`].
    pub async fn request(&mut self, request: &Request) -> Result<Reply, RemoteError> {
        self.ask(request).await?;
        self.reply().await
    }

    /// The one reply of the oldest request without one.
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

    /// Says goodbye; who just drops a remote resets the connection.
    pub async fn close(mut self) {
        // The other end learns it from the connection's end as well.
        _ = timeout(Duration::from_secs(1), self.channel.shutdown()).await;
    }

    /// Does a part of the conversation; what breaks it off leaves the channel torn.
    async fn exchange<T>(
        &mut self,
        part: impl AsyncFnOnce(&mut Self) -> io::Result<T>,
    ) -> Result<T, RemoteError> {
        if self.torn {
            let why = io::Error::other("an earlier transfer on this connection broke off");
            return Err(self.lost(why));
        }
        self.torn = true;
        let done = part(self).await;
        self.torn = done.is_err();
        done.map_err(|why| self.lost(why))
    }

    fn lost(&self, why: io::Error) -> RemoteError {
        RemoteError::lost(&self.node, self.stream().route(), why)
    }

    /// The oldest request has its whole answer.
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
            for piece in bytes.chunks(SENT) {
                within(self.channel.write_all(piece)).await?;
            }
            any = true;
        }
        if any { within(self.channel.flush()).await } else { Ok(()) }
    }

    /// The next message that is no `Wait`, of which there are only so many: by their number and by
    /// the time.
    async fn message(&mut self) -> io::Result<Reply> {
        let patience = self.sent.front().map_or(asked::PATIENCE, |asked| asked.patience);
        let (began, mut left) = (Instant::now(), patience.as_secs() / asked::EACH.as_secs());
        loop {
            match self.any_message().await? {
                Reply::Wait if left == 0 || began.elapsed() > patience => {
                    return Err(asked::never(patience));
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

/// A step that must end before the other end counts as gone.
async fn within<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match timeout(SILENCE, step).await {
        Ok(done) => done,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("it has said nothing for {SILENCE:?}"),
        )),
    }
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn unexpected() -> io::Error {
    invalid("another answer came than was asked for; do both hosts run the same version?")
}
