//! Connections that do not end well by accident.

use crate::{Stream, channel::Channel};
use socket2::SockRef;
use std::{ops, time::Duration};
use tokio::net::TcpStream;

/// A leg of a relayed connection: a TCP connection, or what runs on one, or a bond's stream.
pub trait Leg: Send + Unpin {
    /// The TCP connection, for its options and counters; none: a bond's stream, which looks after
    /// its links itself.
    fn tcp(&self) -> Option<&TcpStream>;

    /// Has it be reset when it is dropped: what is queued is not sent any more.
    fn reset(&mut self) {
        if let Some(tcp) = self.tcp() {
            // A socket that refuses this is already gone.
            _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
        }
    }
}

impl Leg for TcpStream {
    fn tcp(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl Leg for Channel<TcpStream> {
    fn tcp(&self) -> Option<&TcpStream> {
        Some(self.get_ref())
    }
}

/// A leg on its own piece of memory: futures that pass it on stay small.
impl<L: Leg> Leg for Box<L> {
    fn tcp(&self) -> Option<&TcpStream> {
        (**self).tcp()
    }

    fn reset(&mut self) {
        (**self).reset();
    }
}

/// What was dialled for a local program, seen by its first leg.
impl Leg for Stream {
    fn tcp(&self) -> Option<&TcpStream> {
        self.tcp()
    }

    fn reset(&mut self) {
        self.reset();
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
            self.leg.reset();
        }
    }
}
