//! A turn: the bytes that one direction moves before it pays its quota and lets others run.

use super::throttle::{THROTTLED_TURN, Throttle};
use crate::legs::LegEnd;
use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};
use tokio::{io::Interest, net::TcpStream};

/// The most bytes that a direction moves in one turn: 1 MiB, which takes less than 1 ms.
const TURN: usize = 1024 * 1024;

/// The most bytes of a turn.
pub fn allowance(throttle: Option<&dyn Throttle>) -> usize {
    if throttle.is_some() { THROTTLED_TURN } else { TURN }
}

/// Why a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// Nothing more has arrived.
    Drained,
    /// The turn has moved its most bytes.
    Exhausted,
    /// The sender has ended its direction.
    Ended,
}

/// One direction of a clear connection.
#[derive(Clone, Copy, Debug)]
pub struct ClearDirection<'a> {
    pub from: &'a TcpStream,
    pub sender: LegEnd,
    pub to: &'a TcpStream,
    /// Counts the bytes passed on.
    pub moved: &'a AtomicU64,
    /// Set once the receiver's leg has failed.
    pub unheard: &'a AtomicBool,
    /// Set once writing to the sender's leg has failed in the other direction. The kernel has then reported the leg's
    /// error and will not again, so an end of stream that is read here may be a reset.
    pub cut: &'a AtomicBool,
}

impl ClearDirection<'_> {
    /// Runs `step` on the receiver's leg whenever it has room, until `step` returns `true`.
    ///
    /// # Errors
    /// If the leg fails.
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
                Err(e) => {
                    self.unheard.store(true, Ordering::Relaxed);
                    return Err(e);
                }
            }
        }
    }
}
