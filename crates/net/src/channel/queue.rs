//! Turns for the key work of handshakes, so that a source that begins thousands does not delay the others'.
//!
//! An exchange of keys and a signature take a processor a fraction of a millisecond, and nobody has shown a right before. A
//! turn covers this work alone, never a wait for the network: a peer that says nothing holds none.

use std::io;
use thalweg_base::{
    budget::PeerKey,
    costly::{Turn, Turns},
};

/// Where the handshakes of one source wait for their turns.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a, IO> {
    /// The turns of all sources.
    pub turns: &'a Turns,
    /// The source.
    pub who: PeerKey,
    /// Whether a peer has left while it waited: no work is done for it.
    pub has_left: fn(&IO) -> bool,
}

impl<IO> Queue<'_, IO> {
    /// Waits for a turn; none is needed where there is no queue.
    pub(super) async fn turn(queue: Option<&Self>) -> Option<Turn> {
        match queue {
            Some(queue) => Some(queue.turns.turn(queue.who).await),
            None => None,
        }
    }

    /// Checks, once there is a turn, that the peer is still there.
    ///
    /// # Errors
    /// `UnexpectedEof`.
    pub(super) fn check(queue: Option<&Self>, io: &IO) -> io::Result<()> {
        match queue.is_some_and(|queue| (queue.has_left)(io)) {
            true => {
                let why = "the client left before its handshake had its turn";
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, why))
            }
            false => Ok(()),
        }
    }
}
