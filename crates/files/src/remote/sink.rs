//! Where bytes go as they come.

use crate::{
    inventory::FileNo,
    land::{Land, LandError},
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// Takes bytes of one request as they come; its waiting is what slows the sender down.
///
/// They are believed only once the whole request has ended well: until then, and for ever if it
/// fails, they may be anything.
pub trait Sink: Send {
    /// Bytes of the request's file with this index (0 if it asks for one), `at` a place of
    /// that file. Not more than 256 KiB at a time.
    fn take(&mut self, index: usize, at: u64, bytes: Bytes)
    -> BoxFuture<'_, Result<(), LandError>>;

    /// The file's bytes with this index have come to their end: all of them, and as the source
    /// sent them, or they are not to be believed.
    fn judged(&mut self, index: usize, good: bool) -> BoxFuture<'_, Result<(), LandError>> {
        _ = (index, good);
        Box::pin(async { Ok(()) })
    }
}

/// Bytes of files of an inventory go to a [`Land`], once they can be believed.
///
/// Until then they are held here: a file that cannot be read any further comes filled up with
/// zeros, and only the word after its last byte tells. On the disk it would be shown, or
/// gone on with after a crash. So a request for a part should be for a few MiB at most.
#[derive(Debug)]
pub struct ToLand<'a> {
    land: &'a Arc<dyn Land>,
    files: &'a [FileNo],
    held: Vec<(u64, Bytes)>,
}

impl<'a> ToLand<'a> {
    /// The files in the order of the request.
    pub fn new(land: &'a Arc<dyn Land>, files: &'a [FileNo]) -> Self {
        Self { land, files, held: Vec::new() }
    }
}

impl Sink for ToLand<'_> {
    fn take(
        &mut self,
        index: usize,
        at: u64,
        bytes: Bytes,
    ) -> BoxFuture<'_, Result<(), LandError>> {
        _ = index;
        // One that came slowly is a small piece of a large buffer.
        let small = bytes.len() < super::reading::MOST / 4;
        self.held.push((at, if small { Bytes::copy_from_slice(&bytes) } else { bytes }));
        Box::pin(async { Ok(()) })
    }

    fn judged(&mut self, index: usize, good: bool) -> BoxFuture<'_, Result<(), LandError>> {
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

/// All bytes of one read, in memory: for small things and tests.
impl Sink for Vec<u8> {
    fn take(&mut self, _: usize, _: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), LandError>> {
        self.extend_from_slice(&bytes);
        Box::pin(async { Ok(()) })
    }
}
