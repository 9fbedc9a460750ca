//! Schedules the key work of handshakes, so that a source that starts thousands does not delay those of others.
//!
//! A key exchange and a signature take a fraction of a millisecond of processor time before the peer has shown any
//! right. A turn covers this work alone and never a wait for the network, so a silent peer holds no turn.

use std::io;
use thalweg_base::{
    budget::PeerKey,
    costly::{Turn, Turns},
};

/// The queue of one source's handshakes.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a, IO> {
    /// The turns shared by all sources.
    pub turns: &'a Turns,
    /// The source.
    pub who: PeerKey,
    /// Whether a peer has closed the connection; no work is done for it then.
    pub has_left: fn(&IO) -> bool,
}

impl<IO> Queue<'_, IO> {
    /// Waits for a turn; returns `None` at once if there is no queue.
    pub(super) async fn turn(queue: Option<&Self>) -> Option<Turn> {
        match queue {
            Some(queue) => Some(queue.turns.turn(queue.who).await),
            None => None,
        }
    }

    /// Checks after a wait for a turn that the peer is still connected.
    ///
    /// # Errors
    /// `UnexpectedEof` if it is not.
    pub(super) fn check(queue: Option<&Self>, io: &IO) -> io::Result<()> {
        match queue.is_some_and(|queue| (queue.has_left)(io)) {
            true => {
                let why = "the client disconnected before its turn for the handshake";
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
            }
            false => Ok(()),
        }
    }
}
