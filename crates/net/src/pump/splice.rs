//! Turns with `splice`: bytes go from socket to socket without entering user space.

use super::turn::{ClearDirection, TurnEnd};
use crate::splice::{Filled, PipePool};
use std::io;
use tokio::io::Interest;

/// Moves the bytes that have arrived, at most `most`. Returns `None` if there is no pipe, and then nothing has moved.
///
/// The pipe is held for this turn; it is held longer only while the receiver has no room for the bytes in it.
///
/// # Errors
/// If a leg fails.
pub async fn turn(
    way: &ClearDirection<'_>,
    pipes: &PipePool,
    most: usize,
) -> io::Result<Option<(usize, TurnEnd)>> {
    let Some(mut pipe) = pipes.lend() else { return Ok(None) };
    let mut total = 0;
    while total < most {
        let filled = way.from.try_io(Interest::READABLE, || pipe.fill(way.from, most - total));
        match filled {
            Ok(Filled::Bytes(n)) => total += n,
            Ok(Filled::Ended) => return Ok(Some((total, TurnEnd::Ended))),
            Ok(Filled::Refused) => return Ok((total > 0).then_some((total, TurnEnd::Exhausted))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Some((total, TurnEnd::Drained)));
            }
            Err(e) => return Err(e),
        }
        way.give(|to| pipe.drain(to).map(|n| (n, pipe.held() == 0))).await?;
    }
    Ok(Some((total, TurnEnd::Exhausted)))
}
