//! One connection that a bond uses.

use crate::interfaces::Uplinks;
use std::{
    fmt,
    io::{self, Cursor},
    os::fd::{AsFd as _, OwnedFd},
    time::Duration,
};
use thalweg_bond::Beyond;
use thalweg_net::{Route, TcpInfo};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, BufReader},
    net::{TcpStream, tcp::OwnedWriteHalf},
};

/// What is read at once: some chunks.
const BUFFER: usize = 128 << 10;

/// The same where each byte is counted before the next one is read.
const PAID_BUFFER: usize = 1 << 10;

/// What comes by a link.
pub type Read = BufReader<Box<dyn AsyncRead + Send + Unpin>>;

/// A connection whose greeting is over.
pub struct LinkIo {
    /// What comes.
    pub read: Read,
    /// What goes.
    pub write: OwnedWriteHalf,
    /// The connection, for its counters and its queue.
    pub socket: OwnedFd,
    /// Whether it may carry what another carries already.
    pub may_duplicate: bool,
    /// The interface that it leaves by, where this end dialled.
    pub interface: Option<String>,
    /// The relays that it goes by, where this end dialled and there are some.
    pub via: Option<String>,
    /// What lies beyond the first relay, if there is one.
    pub beyond: Option<Beyond>,
    /// Who is told what it moves, and says when it may move more.
    pub meter: Option<Meter>,
}

/// An interface's cap and rate limit, for a link that leaves by it, until it is dropped.
#[derive(Debug)]
pub struct Meter {
    uplinks: Uplinks,
    interface: String,
}

impl Meter {
    /// For the interface of this name.
    pub fn new(uplinks: Uplinks, interface: &str) -> Self {
        uplinks.table().link_began(interface);
        Self { uplinks, interface: interface.to_owned() }
    }

    /// The link moved so many bytes.
    pub fn moved(&self, bytes: u64) {
        self.uplinks.link_moved(&self.interface, bytes);
    }

    /// Waits until it may move more.
    ///
    /// # Errors
    /// The cap is used up.
    pub async fn may(&self) -> io::Result<()> {
        self.uplinks.may(&self.interface).await.map_err(io::Error::other)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.uplinks.table().link_ended(&self.interface);
    }
}

impl fmt::Debug for LinkIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkIo({:?})", self.socket)
    }
}

impl LinkIo {
    /// In the clear.
    ///
    /// # Errors
    /// The system's.
    pub fn clear(tcp: TcpStream) -> io::Result<Self> {
        Self::clear_after(Vec::new(), tcp)
    }

    /// In the clear, after bytes that were read off it already.
    ///
    /// # Errors
    /// The system's.
    pub fn clear_after(early: Vec<u8>, tcp: TcpStream) -> io::Result<Self> {
        let socket = tcp.as_fd().try_clone_to_owned()?;
        let (read, write) = tcp.into_split();
        let read: Box<dyn AsyncRead + Send + Unpin> = match early.is_empty() {
            true => Box::new(read),
            false => Box::new(Cursor::new(early).chain(read)),
        };
        let read = BufReader::with_capacity(BUFFER, read);
        let (interface, via, beyond, meter) = (None, None, None, None);
        Ok(Self { read, write, socket, may_duplicate: true, interface, via, beyond, meter })
    }

    /// The same, which carries nothing that another carries already: its bytes cost.
    #[must_use]
    pub fn metered(self) -> Self {
        Self { may_duplicate: false, ..self }
    }

    /// The same before anything was read of it, whose bytes are counted, and waited for, there.
    #[must_use]
    pub fn paying(self, meter: Meter) -> Self {
        // What is read ahead has come, and is not counted yet.
        let read = BufReader::with_capacity(PAID_BUFFER, self.read.into_inner());
        Self { read, meter: Some(meter), ..self }
    }

    /// The same, which leaves by the interface of this name, and by this route.
    #[must_use]
    pub fn by(self, interface: &str, route: &Route) -> Self {
        let via = (!route.is_direct()).then(|| route.called());
        Self { interface: Some(interface.to_owned()), via, ..self }
    }

    /// The same, which goes through relays: an answer of the far end took so long.
    #[must_use]
    pub fn relayed(self, took: Duration) -> Self {
        let own = TcpInfo::of(&self.socket).map_or(took, |info| info.rtt);
        Self { beyond: Some(Beyond::new(took, own)), ..self }
    }
}
