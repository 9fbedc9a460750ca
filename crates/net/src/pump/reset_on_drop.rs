//! Connections that are reset unless they are closed explicitly.

use crate::{Stream, channel::Channel};
use socket2::SockRef;
use std::{ops, time::Duration};
use tokio::net::TcpStream;

/// A leg of a relayed connection: a TCP connection, a protocol on top of one, or a stream of a bond.
pub trait PumpLeg: Send + Unpin {
    /// The TCP connection, for its options and counters; `None` for a stream of a bond, which watches its links itself.
    fn tcp(&self) -> Option<&TcpStream>;

    /// Makes the connection be reset when it is dropped: queued bytes are not sent any more.
    fn reset(&mut self) {
        if let Some(tcp) = self.tcp() {
            // An error means that the connection is already gone.
            _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
        }
    }
}

impl PumpLeg for TcpStream {
    fn tcp(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl PumpLeg for Channel<TcpStream> {
    fn tcp(&self) -> Option<&TcpStream> {
        Some(self.get_ref())
    }
}

/// A leg on the heap, which keeps the futures that pass it on small.
impl<L: PumpLeg> PumpLeg for Box<L> {
    fn tcp(&self) -> Option<&TcpStream> {
        (**self).tcp()
    }

    fn reset(&mut self) {
        (**self).reset();
    }
}

/// A connection that was dialled for a local program, represented by its first leg.
impl PumpLeg for Stream {
    fn tcp(&self) -> Option<&TcpStream> {
        self.tcp()
    }

    fn reset(&mut self) {
        self.reset();
    }
}

/// A connection that is *reset* when it is dropped, unless [`close`](Self::close) was called.
///
/// So after any failure (a timeout, a panic, a shutdown) no peer mistakes a truncated stream for a complete one. Bytes
/// queued in the kernel are not sent any more.
#[derive(Debug)]
pub struct ResetOnDrop<L: PumpLeg = TcpStream> {
    leg: L,
    ended_well: bool,
}

impl<L: PumpLeg> ResetOnDrop<L> {
    pub fn new(leg: L) -> Self {
        Self { leg, ended_well: false }
    }

    /// Closes the connection properly: queued bytes are still delivered.
    pub fn close(mut self) {
        self.ended_well = true;
    }
}

impl<L: PumpLeg> ops::Deref for ResetOnDrop<L> {
    type Target = L;
    fn deref(&self) -> &L {
        &self.leg
    }
}

impl<L: PumpLeg> ops::DerefMut for ResetOnDrop<L> {
    fn deref_mut(&mut self) -> &mut L {
        &mut self.leg
    }
}

impl<L: PumpLeg> Drop for ResetOnDrop<L> {
    fn drop(&mut self) {
        if !self.ended_well {
            self.leg.reset();
        }
    }
}
