//! An entry while it is sent.

use super::{Part, filling::blocking};
use bytes::Bytes;
use std::{fs::File, os::unix::fs::FileExt as _, sync::Arc};
use thalweg_wire::object::Failure;

/// What is read at once.
const BUFFER: u64 = 256 * 1024;

/// An entry while it is sent.
#[derive(Debug)]
pub struct Reading {
    file: Arc<File>,
    parts: Vec<Part>,
    at: u64,
}

impl Reading {
    pub(super) fn new(file: File, parts: Vec<Part>) -> Self {
        Self { file: Arc::new(file), parts, at: 0 }
    }

    /// Its parts, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The next bytes, of `left` that are to come of a part; never none.
    ///
    /// # Errors
    /// [`Failure::System`].
    pub async fn next(&mut self, left: u64) -> Result<Bytes, Failure> {
        let (file, at) = (Arc::clone(&self.file), self.at);
        let length = left.min(BUFFER);
        let read = move || {
            let mut bytes = vec![0; length as usize];
            file.read_exact_at(&mut bytes, at).map(|()| Bytes::from(bytes))
        };
        let bytes = blocking(tokio::task::spawn_blocking(read).await)?;
        self.at += length;
        Ok(bytes)
    }

    /// Passes over what is left of a part.
    pub fn skip(&mut self, left: u64) {
        self.at += left;
    }
}
