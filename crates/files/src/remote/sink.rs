//! Receivers of the bytes of a request, as they arrive.

use crate::{
    inventory::FileNo,
    land::{Land, LandError},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Takes bytes of one request as they arrive. While it waits, the sender is slowed down by backpressure.
///
/// The bytes are verified only when the whole part has ended well ([`Sink::end_part`]). Until then, and if it fails,
/// they may be anything.
pub trait Sink: Send {
    /// Takes bytes of the request's file with this index (0 if it requests one), at the offset `at` of that file. At
    /// most 256 KiB at a time.
    fn take(&mut self, index: usize, at: u64, bytes: Bytes)
    -> BoxFuture<'_, Result<(), LandError>>;

    /// Ends the bytes of the file with this index. `good`: all bytes arrived, and as the source sent them; otherwise
    /// they must be discarded.
    fn end_part(&mut self, index: usize, good: bool) -> BoxFuture<'_, Result<(), LandError>> {
        _ = (index, good);
        Box::pin(async { Ok(()) })
    }
}

/// Passes bytes of an inventory's files to a [`Land`] once they are verified.
///
/// Until then it holds them: a file that can no longer be read is filled up with zeros, and only the message after its
/// last byte says so. If they were on the disk already, they would be published, or kept after a crash. So a request
/// for a part should be for a few MiB at most.
#[derive(Debug)]
pub struct LandSink<'a> {
    land: &'a Arc<dyn Land>,
    files: &'a [FileNo],
    held: Vec<(u64, Bytes)>,
}

impl<'a> LandSink<'a> {
    /// Creates the sink of a request for these files, in the request's order.
    pub fn new(land: &'a Arc<dyn Land>, files: &'a [FileNo]) -> Self {
        Self { land, files, held: Vec::new() }
    }
}

impl Sink for LandSink<'_> {
    fn take(
        &mut self,
        index: usize,
        at: u64,
        bytes: Bytes,
    ) -> BoxFuture<'_, Result<(), LandError>> {
        _ = index;
        // Bytes that arrive slowly are a small piece of a large buffer.
        let small = bytes.len() < super::reading::MAX_CHUNK / 4;
        self.held.push((at, if small { Bytes::copy_from_slice(&bytes) } else { bytes }));
        Box::pin(async { Ok(()) })
    }

    fn end_part(&mut self, index: usize, good: bool) -> BoxFuture<'_, Result<(), LandError>> {
        let held = std::mem::take(&mut self.held);
        let file = self.files.get(index).copied().filter(|_| good);
        Box::pin(async move {
            let Some(file) = file else { return Ok(()) };
            for (at, bytes) in held {
                self.land.write(file, at, bytes).await?;
            }
            Ok(())
        })
    }
}

/// Collects all bytes of one read in memory, for small files and tests.
impl Sink for Vec<u8> {
    fn take(&mut self, _: usize, _: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), LandError>> {
        self.extend_from_slice(&bytes);
        Box::pin(async { Ok(()) })
    }
}
