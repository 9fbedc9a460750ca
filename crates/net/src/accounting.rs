//! The interface to bookkeepers, which count the bytes that a dialer's connections move over each network interface.

use crate::TcpInfo;
use std::{
    fmt, io,
    num::NonZeroU32,
    task::{Context, Poll},
};

/// Knows which interfaces have a data cap or a rate limit.
///
/// A [`Dialer`](crate::Dialer) asks it before it opens a TCP connection for its own host. Connections that a relay
/// opens for others are counted elsewhere.
pub trait Bookkeeper: fmt::Debug + Send + Sync {
    /// Opens an account for a new connection over `interface`; `None` if the interface needs no account.
    ///
    /// # Errors
    /// If the connection may not be opened, because the cap is used up.
    fn open_account(&self, interface: NonZeroU32) -> io::Result<Option<AccountEntry>>;
}

/// A connection's entry in the books.
#[derive(Debug)]
pub struct AccountEntry {
    /// The maximum bytes that the peer may send ahead of the reader; `None` leaves the kernel's default.
    pub ahead: Option<usize>,
    pub account: Box<dyn Account>,
}

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteDirection {
    /// To this host.
    Down,
    Up,
}

/// The account of one connection. It is dropped when the connection ends, after [`Self::close`].
pub trait Account: fmt::Debug + Send + Sync {
    /// Ready once the connection may move more bytes in this direction; until then it registers the task to be woken.
    ///
    /// # Errors
    /// If the connection may move nothing more.
    fn poll_permission(&mut self, way: ByteDirection, cx: &mut Context<'_>)
    -> Poll<io::Result<()>>;

    /// Records that the owner read or wrote `bytes`, with the kernel's present counters if they are available.
    fn moved(&mut self, bytes: usize, counts: Option<&TcpInfo>);

    /// Records that the connection is closed, with counters as in [`Self::moved`].
    fn close(&mut self, counts: Option<&TcpInfo>);
}
