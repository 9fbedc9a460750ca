//! Where bytes go as they come.

use super::super::{FileNo, Land, LandError};
use crate::daemon::BoxFuture;
use bytes::Bytes;
use std::sync::Arc;

/// Takes bytes of one request as they come; its waiting is what slows the sender down.
///
/// They are believed only once the whole request has ended well: until then, and for ever if it
/// fails, they may be anything.
pub trait Sink: Send {
    /// Bytes of the request's file with this index (0 if it asks for one), `at` a place of
    /// that file. Not more than [`super::reading::MOST`] at a time.
    fn take(&mut self, index: usize, at: u64, bytes: Bytes)
    -> BoxFuture<'_, Result<(), LandError>>;
}

/// Bytes of files of an inventory go to a [`Land`].
#[derive(Debug)]
pub struct ToLand<'a> {
    land: &'a Arc<dyn Land>,
    files: &'a [FileNo],
}

impl<'a> ToLand<'a> {
    /// The files in the order of the request.
    pub fn new(land: &'a Arc<dyn Land>, files: &'a [FileNo]) -> Self {
        Self { land, files }
    }
}

impl Sink for ToLand<'_> {
    fn take(
        &mut self,
        index: usize,
        at: u64,
        bytes: Bytes,
    ) -> BoxFuture<'_, Result<(), LandError>> {
        match self.files.get(index) {
            Some(file) => self.land.write(*file, at, bytes),
            None => Box::pin(async { Ok(()) }),
        }
    }
}

/// All bytes of one read, in memory: for small things and tests.
impl Sink for Vec<u8> {
    fn take(&mut self, _: usize, _: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), LandError>> {
        self.extend_from_slice(&bytes);
        Box::pin(async { Ok(()) })
    }
}
