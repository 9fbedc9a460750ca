//! Who keeps account of what a dialler's connections move by this host's interfaces.

use crate::TcpInfo;
use std::{
    fmt, io,
    num::NonZeroU32,
    task::{Context, Poll},
};

/// Knows which interfaces have a cap or a limit.
///
/// A [`Dialer`](crate::Dialer) asks it before it makes a TCP connection of its own; what relays connect to on behalf of
/// others has accounts elsewhere.
pub trait Bookkeeper: fmt::Debug + Send + Sync {
    /// A connection by this interface is to be made. `None`: nothing is kept of it.
    ///
    /// # Errors
    /// It may not be made: the cap is used up.
    fn enter(&self, interface: NonZeroU32) -> io::Result<Option<Entry>>;
}

/// What a connection has of its bookkeeper.
#[derive(Debug)]
pub struct Entry {
    /// Bytes that the peer may send ahead of who reads; `None`: as the kernel has it.
    pub ahead: Option<usize>,
    /// Its account.
    pub account: Box<dyn Account>,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To this host.
    Down,
    /// From it.
    Up,
}

/// One connection's account; dropped when it ends, after a last look.
pub trait Account: fmt::Debug + Send + Sync {
    /// Ready once it may move more that way; the task is woken then.
    ///
    /// # Errors
    /// It may move nothing more.
    fn poll_may(&mut self, way: Way, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Its owner read or wrote so many bytes; and what the kernel counts by now, where it tells.
    fn moved(&mut self, bytes: usize, counts: Option<&TcpInfo>);

    /// It is closed now; as [`Self::moved`].
    fn ends(&mut self, counts: Option<&TcpInfo>);
}
