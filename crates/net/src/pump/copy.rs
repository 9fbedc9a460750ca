//! Turns by copying, for small amounts and without a pipe.

use super::turn::{ClearDirection, TurnEnd};
use rustix::buffer::spare_capacity;
use std::io;
use tokio::{io::Interest, net::TcpStream};

/// The buffer's size without a pipe: a full TCP segmentation unit.
pub const CHUNK: usize = 64 * 1024;

/// Copies the bytes that have arrived, at most `most`, in pieces of `chunk`. The buffer lives for this turn only.
///
/// # Errors
/// If a leg fails.
pub async fn turn(
    way: &ClearDirection<'_>,
    chunk: usize,
    most: usize,
) -> io::Result<(usize, TurnEnd)> {
    let mut buffer = Vec::with_capacity(chunk);
    let mut total = 0;
    while total < most {
        buffer.clear();
        match take(way.from, &mut buffer) {
            Ok(()) if buffer.is_empty() => return Ok((total, TurnEnd::Ended)),
            Ok(()) => total += buffer.len(),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Ok((total, TurnEnd::Drained));
            }
            Err(e) => return Err(e),
        }
        let partial = buffer.len() < chunk;
        give(way, &buffer).await?;
        if partial {
            return Ok((total, TurnEnd::Drained));
        }
    }
    Ok((total, TurnEnd::Exhausted))
}

/// Reads once. A partial read has emptied the socket, which is marked as not readable.
fn take(from: &TcpStream, buffer: &mut Vec<u8>) -> io::Result<()> {
    let mut partial = false;
    let taken = from.try_io(Interest::READABLE, || {
        let n = rustix::io::read(from, spare_capacity(buffer))?;
        partial = n > 0 && buffer.len() < buffer.capacity();
        // The error makes tokio clear the socket's readiness, which saves a read that would only return `WouldBlock`.
        if partial { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    if partial { Ok(()) } else { taken }
}

/// Passes on all of `bytes`.
///
/// # Errors
/// If the receiver's leg fails.
pub async fn give(way: &ClearDirection<'_>, bytes: &[u8]) -> io::Result<()> {
    let mut given = 0;
    way.give(|to| {
        let n = rustix::io::write(to, &bytes[given..])?;
        given += n;
        Ok((n, given == bytes.len()))
    })
    .await
}
