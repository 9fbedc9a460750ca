//! Moves bytes between the two legs of a connection until both directions have ended.
//!
//! ```text
//! clear  client ══ splice, or copy ══ destination      kernel to kernel, by pipes of a pool
//! sealed client ══ TLS ═══ buffers ══ destination      close_notify ↔ FIN
//! ```
//!
//! - The end of one direction is passed on as such (half-close), and the other direction continues.
//! - Every failure *resets* both legs, so that no truncated stream looks complete. If the destination has closed its
//!   leg, the bytes it sent before are delivered first: a server may answer and close in the middle of an upload.
//! - An idle connection holds neither a pipe nor a buffer. A busy one yields after each turn.

mod clear;
mod copy;
mod liveness_watch;
mod reset_on_drop;
mod sealed;
mod splice;
mod throttle;
mod turn;

#[cfg(test)]
mod tests;

pub use reset_on_drop::{PumpLeg, ResetOnDrop};
pub use throttle::{THROTTLED_TURN, Throttle, ThrottleFuture};

use super::{
    legs::LegWatcher,
    liveness::{Limits, Verdict},
};
use crate::{TcpInfo, splice::PipePool};
use std::{io, sync::atomic::AtomicU64};
use thalweg_base::budget::OverBudget;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};

/// Bytes moved so far, in each direction.
#[derive(Debug, Default)]
pub struct Moved {
    /// From the client to the destination.
    pub up: AtomicU64,
    /// From the destination to the client.
    pub down: AtomicU64,
}

/// Why a pump stopped before both directions had ended.
#[derive(Debug, Error)]
pub enum Stopped {
    #[error("a leg broke: {0}")]
    Broken(#[source] io::Error),
    /// A leg or both were given up.
    #[error("given up: {0}")]
    GivenUp(Verdict),
    /// The client's quota is used up.
    #[error("quota: {0}")]
    Quota(#[from] OverBudget),
    /// The client is no longer admitted: its key is revoked, or the roster has expired.
    #[error("cut: the client is no longer admitted")]
    Cut,
}

/// How a connection is pumped.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// When the connection is given up.
    pub limits: Limits,
    /// Where its bytes are counted.
    pub moved: &'a Moved,
    /// The client's quota, if it has one.
    pub throttle: Option<&'a dyn Throttle>,
    /// The source of pipes; without a pipe bytes are copied.
    pub pipes: &'a PipePool,
    /// Observes both legs' counters.
    pub watcher: Option<&'a dyn LegWatcher>,
}

impl<'a> Terms<'a> {
    /// Terms without a quota, with the process's pipes.
    pub fn new(limits: Limits, moved: &'a Moved) -> Self {
        Self { limits, moved, throttle: None, pipes: PipePool::of_process(), watcher: None }
    }
}

/// Moves bytes between two clear legs until both directions have ended and everything is delivered, then closes both.
/// `early` holds bytes of the client that were already read.
///
/// When `cut` completes, both legs are reset at once. Memory per direction: a chunk of 64 kB or a pipe while the
/// receiver is slow, and none while idle.
///
/// # Errors
/// [`Stopped`]; both legs are reset.
pub async fn clear(
    client: ResetOnDrop,
    early: Vec<u8>,
    destination: ResetOnDrop,
    terms: Terms<'_>,
    cut: impl Future<Output = ()>,
) -> Result<(), Stopped> {
    let done = unless(cut, Box::pin(clear::both(&client, early, &destination, terms))).await;
    report_end(terms.watcher, Some(&destination));
    done?;
    client.close();
    destination.close();
    Ok(())
}

/// As [`clear()`], between legs of which one or both stay sealed: a client's channel at a relay, or a local program's
/// connection into the mesh.
///
/// `close_notify` on one leg becomes a FIN on the other, and vice versa. A FIN without `close_notify` is a truncation
/// and breaks the connection.
///
/// # Errors
/// [`Stopped`]; both legs are reset.
pub async fn sealed<C, D>(
    mut client: ResetOnDrop<C>,
    mut destination: ResetOnDrop<D>,
    terms: Terms<'_>,
    cut: impl Future<Output = ()>,
) -> Result<(), Stopped>
where
    C: PumpLeg + AsyncRead + AsyncWrite,
    D: PumpLeg + AsyncRead + AsyncWrite,
{
    let done = unless(cut, Box::pin(sealed::both(&mut *client, &mut *destination, terms))).await;
    report_end(terms.watcher, destination.tcp());
    done?;
    client.close();
    destination.close();
    Ok(())
}

/// Reports the kernel's last counters of a connection that is about to be closed.
fn report_end(watcher: Option<&dyn LegWatcher>, destination: Option<&TcpStream>) {
    if let (Some(watcher), Some(tcp)) = (watcher, destination)
        && let Ok(info) = TcpInfo::of(tcp)
    {
        watcher.record_end(&info);
    }
}

/// Does the work until `cut` completes.
///
/// The work is boxed, and the caller should pin a large `cut`: a future moved by value occupies the stack frame or
/// future of each function that it passes through, for as long as the connection lives.
async fn unless(
    cut: impl Future<Output = ()>,
    work: impl Future<Output = Result<(), Stopped>>,
) -> Result<(), Stopped> {
    tokio::select! {
        biased;
        () = cut => Err(Stopped::Cut),
        done = work => done,
    }
}
