//! Connections that do not end well by accident.

use socket2::SockRef;
use std::{ops, time::Duration};
use thalweg_net::{Stream, channel::Channel};
use tokio::net::TcpStream;

/// A leg of a relayed connection: a TCP connection, or what runs on one.
pub trait Leg: Send + Unpin {
    /// The TCP connection, for its options and counters.
    fn tcp(&self) -> &TcpStream;
}

impl Leg for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Leg for Channel<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref()
    }
}

/// A leg on its own piece of memory: futures that pass it on stay small.
impl<L: Leg> Leg for Box<L> {
    fn tcp(&self) -> &TcpStream {
        (**self).tcp()
    }
}

/// What was dialled for a local program, seen by its first leg.
impl Leg for Stream {
    fn tcp(&self) -> &TcpStream {
        self.tcp()
    }
}

/// A connection that is *reset* when it is dropped, unless it ended well.
///
/// So whatever goes wrong, a timeout, a panic, a cut at shutdown, no peer takes
/// a truncated stream for a complete one. What the kernel has queued is not sent any more.
#[derive(Debug)]
pub struct Resetting<L: Leg = TcpStream> {
    leg: L,
    ended_well: bool,
}

impl<L: Leg> Resetting<L> {
    /// Guards this connection.
    pub fn new(leg: L) -> Self {
        Self { leg, ended_well: false }
    }

    /// Closes in good order: what is queued is still delivered.
    pub fn close(mut self) {
        self.ended_well = true;
    }
}

impl<L: Leg> ops::Deref for Resetting<L> {
    type Target = L;
    fn deref(&self) -> &L {
        &self.leg
    }
}

impl<L: Leg> ops::DerefMut for Resetting<L> {
    fn deref_mut(&mut self) -> &mut L {
        &mut self.leg
    }
}

impl<L: Leg> Drop for Resetting<L> {
    fn drop(&mut self) {
        if !self.ended_well {
            // A socket that refuses this is already gone.
            _ = SockRef::from(self.leg.tcp()).set_linger(Some(Duration::ZERO));
        }
    }
}
