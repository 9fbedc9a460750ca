//! One connection that a bond uses.

use std::{
    fmt, io,
    os::fd::{AsFd as _, OwnedFd},
};
use thalweg_net::{Stream, channel::Channel};
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader, split},
    net::TcpStream,
};

/// What is read at once: some chunks.
const BUFFER: usize = 128 << 10;

/// What comes by a link.
pub type Read = BufReader<Box<dyn AsyncRead + Send + Unpin>>;

/// What goes by it.
pub type Write = Box<dyn AsyncWrite + Send + Unpin>;

/// A connection whose greeting is over.
pub struct LinkIo {
    /// What comes.
    pub read: Read,
    /// What goes.
    pub write: Write,
    /// The connection, for its counters and its queue.
    pub socket: OwnedFd,
    /// Whether it may carry what another carries already.
    pub may_duplicate: bool,
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
        let socket = tcp.as_fd().try_clone_to_owned()?;
        let (read, write) = tcp.into_split();
        Ok(Self::of(Box::new(read), Box::new(write), socket))
    }

    /// In a channel that this host dialled.
    ///
    /// # Errors
    /// The system's.
    pub fn dialled(channel: Channel<Stream>) -> io::Result<Self> {
        let socket = channel.get_ref().tcp().as_fd().try_clone_to_owned()?;
        let (read, write) = split(channel);
        Ok(Self::of(Box::new(read), Box::new(write), socket))
    }

    /// In a channel that was accepted here.
    ///
    /// # Errors
    /// The system's.
    pub fn accepted(channel: Channel<TcpStream>) -> io::Result<Self> {
        let socket = channel.get_ref().as_fd().try_clone_to_owned()?;
        let (read, write) = split(channel);
        Ok(Self::of(Box::new(read), Box::new(write), socket))
    }

    fn of(
        read: Box<dyn AsyncRead + Send + Unpin>,
        write: Box<dyn AsyncWrite + Send + Unpin>,
        socket: OwnedFd,
    ) -> Self {
        let read = BufReader::with_capacity(BUFFER, read);
        Self { read, write, socket, may_duplicate: true }
    }
}
