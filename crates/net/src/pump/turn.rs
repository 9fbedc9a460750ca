//! A turn: what one direction moves before it pays, and before others come to theirs.

use super::throttle::{THROTTLED_TURN, Throttle};
use crate::legs::Sender;
use std::{
    io,
    sync::atomic::{AtomicU64, Ordering},
};
use tokio::{io::Interest, net::TcpStream};

/// The most that a direction moves in one turn: 1 MiB, below 1 ms.
const TURN: usize = 1024 * 1024;

/// What a turn may move.
pub fn allowance(throttle: Option<&dyn Throttle>) -> usize {
    if throttle.is_some() { THROTTLED_TURN } else { TURN }
}

/// How a turn came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nothing more has arrived.
    Dry,
    /// Others' turn.
    Over,
    /// The sender has ended its direction.
    Ended,
}

/// One direction of a clear connection.
#[derive(Clone, Copy, Debug)]
pub struct Way<'a> {
    /// The sender's leg.
    pub from: &'a TcpStream,
    /// Which end that is.
    pub sender: Sender,
    /// The receiver's leg.
    pub to: &'a TcpStream,
    /// Counts what was passed on.
    pub moved: &'a AtomicU64,
}

impl Way<'_> {
    /// Does `step` on the receiver's leg whenever it has room, until `step` says that it is done.
    ///
    /// # Errors
    /// The leg's.
    pub async fn give(
        &self,
        mut step: impl FnMut(&TcpStream) -> io::Result<(usize, bool)>,
    ) -> io::Result<()> {
        loop {
            match self.to.try_io(Interest::WRITABLE, || step(self.to)) {
                Ok((n, done)) => {
                    self.moved.fetch_add(n as u64, Ordering::Relaxed);
                    if done {
                        return Ok(());
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.to.writable().await?,
                Err(e) => return Err(e),
            }
        }
    }
}
