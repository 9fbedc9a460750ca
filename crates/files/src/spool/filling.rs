//! Filling an entry of the spool with parts as they arrive.

use super::{
    Spool,
    entry::{Label, SpooledPart, failure_of},
};
use std::{fs::File, os::unix::fs::FileExt as _, path::PathBuf, sync::Arc};
use thalweg_wire::object::{Failure, MAX_WHY, TransferHash};

/// Bytes that are written at once, so that few writes move to the threads that may wait for the disk.
const BUFFER_SIZE: usize = 256 * 1024;

/// The most bytes of failure texts in an entry. Further failures are recorded without text. So the label and the reply
/// that contains the failures stay short, whatever the other node sends.
const MAX_TEXT: usize = 64 * 1024;

/// Bytes of a part in the label beside the text of a failure.
const PART_OVERHEAD: u64 = 64;

/// An entry that is being received. If it is dropped before [`finish`](Self::finish), it is removed.
#[derive(Debug)]
pub struct Filling {
    spool: Spool,
    file: Arc<File>,
    path: PathBuf,
    label: Label,
    /// The bytes of all parts so far.
    received: u64,
    /// Bytes that are not written yet.
    buffer: Vec<u8>,
    /// The most bytes that may be received.
    most: u64,
    /// The bytes of failure texts that may still be recorded.
    words: usize,
    finished: bool,
}

impl Filling {
    pub(super) fn new(spool: Spool, file: File, path: PathBuf, label: Label, most: u64) -> Self {
        let buffer = Vec::with_capacity(BUFFER_SIZE);
        let file = Arc::new(file);
        Self {
            spool,
            file,
            path,
            label,
            received: 0,
            buffer,
            most,
            words: MAX_TEXT,
            finished: false,
        }
    }

    /// Adds a whole part with its hash, which the caller has verified, or the reason why it was not received.
    ///
    /// # Errors
    /// [`Failure::Full`] if the part exceeds the requested size, or if the spool has become full; [`Failure::System`].
    pub async fn push(
        &mut self,
        bytes: &[u8],
        received: Result<TransferHash, Failure>,
    ) -> Result<(), Failure> {
        let bytes = if received.is_ok() { bytes } else { &[] };
        let size = bytes.len() as u64;
        if self.received + size > self.most {
            return Err(Failure::Full(self.received + size - self.most));
        }
        let received = received.map_err(|why| {
            let why = why.cut(self.words.min(MAX_WHY));
            self.words = self.words.saturating_sub(why.text_len());
            why
        });
        let words = received.as_ref().err().map_or(0, Failure::text_len);
        self.spool.record_received(&self.label, size, PART_OVERHEAD + words as u64)?;
        self.received += size;
        self.label.parts.push(SpooledPart { bytes: size, check: received });
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_SIZE { self.flush().await } else { Ok(()) }
    }

    /// Completes the entry, which can be read from now on. Returns the result of each part.
    ///
    /// # Errors
    /// [`Failure::System`].
    pub async fn finish(mut self) -> Result<Vec<Result<TransferHash, Failure>>, Failure> {
        self.flush().await?;
        let (file, label) = (Arc::clone(&self.file), self.label.clone());
        let written = tokio::task::spawn_blocking(move || label.write(&file)).await;
        let length = blocking(written)?;
        let shown = self.path.with_extension("");
        std::fs::rename(&self.path, shown).map_err(|e| failure_of("rename", &e))?;
        self.finished = true;
        self.spool.record_finished(&self.label, length);
        Ok(self.label.parts.iter().map(|part| part.check.clone()).collect())
    }

    /// Writes the buffer on a blocking thread, since the disk may be slow.
    async fn flush(&mut self) -> Result<(), Failure> {
        let bytes = std::mem::take(&mut self.buffer);
        let at = self.received - bytes.len() as u64;
        let file = Arc::clone(&self.file);
        let write = move || file.write_all_at(&bytes, at).map(|()| bytes);
        self.buffer = blocking(tokio::task::spawn_blocking(write).await)?;
        self.buffer.clear();
        Ok(())
    }
}

/// The result of a blocking task.
pub(super) fn blocking<T>(
    done: Result<std::io::Result<T>, tokio::task::JoinError>,
) -> Result<T, Failure> {
    let done = done.map_err(|e| Failure::System(format!("the spool cannot be used ({e})")))?;
    done.map_err(|e| failure_of("write", &e))
}

impl Drop for Filling {
    fn drop(&mut self) {
        if !self.finished {
            // A file that cannot be removed now is removed when the node starts again.
            _ = std::fs::remove_file(&self.path);
            self.spool.record_abandoned(&self.label);
        }
    }
}
