//! An entry while it comes.

use super::{
    Spool,
    entry::{Label, Part, in_words},
};
use std::{fs::File, os::unix::fs::FileExt as _, path::PathBuf, sync::Arc};
use thalweg_wire::object::{Check, Failure};

/// What is written at once: few hops to the threads that may wait for the disk.
const BUFFER: usize = 256 * 1024;

/// An entry while it comes; dropped before its [`finish`](Self::finish) it is forgotten.
#[derive(Debug)]
pub struct Filling {
    spool: Spool,
    file: Arc<File>,
    path: PathBuf,
    label: Label,
    /// Bytes of all parts.
    came: u64,
    /// The last of them, not written yet.
    buffer: Vec<u8>,
    /// The most bytes that may come.
    most: u64,
    finished: bool,
}

impl Filling {
    pub(super) fn new(spool: Spool, file: File, path: PathBuf, label: Label, most: u64) -> Self {
        let buffer = Vec::with_capacity(BUFFER);
        let file = Arc::new(file);
        Self { spool, file, path, label, came: 0, buffer, most, finished: false }
    }

    /// Takes a whole part with its hash, which the caller has compared, or why it did not come.
    ///
    /// # Errors
    /// [`Failure::Full`] beyond what was asked for; [`Failure::System`].
    pub async fn push(
        &mut self,
        bytes: &[u8],
        came: Result<Check, Failure>,
    ) -> Result<(), Failure> {
        let bytes = if came.is_ok() { bytes } else { &[] };
        let size = bytes.len() as u64;
        if self.came + size > self.most {
            return Err(Failure::Full(self.came + size - self.most));
        }
        self.came += size;
        self.label.parts.push(Part { bytes: size, check: came });
        self.buffer.extend_from_slice(bytes);
        self.spool.came(&self.label, size);
        if self.buffer.len() >= BUFFER { self.flush().await } else { Ok(()) }
    }

    /// All parts are here: it can be read from now on. Returns what came of the parts.
    ///
    /// # Errors
    /// [`Failure::System`].
    pub async fn finish(mut self) -> Result<Vec<Result<Check, Failure>>, Failure> {
        self.flush().await?;
        let (file, label) = (Arc::clone(&self.file), self.label.clone());
        let written = tokio::task::spawn_blocking(move || label.write(&file)).await;
        let length = blocking(written)?;
        let shown = self.path.with_extension("");
        std::fs::rename(&self.path, shown).map_err(|e| in_words("rename", &e))?;
        self.finished = true;
        self.spool.finished(&self.label, length);
        Ok(self.label.parts.iter().map(|part| part.check.clone()).collect())
    }

    /// On threads of their own: the disk may be slow.
    async fn flush(&mut self) -> Result<(), Failure> {
        let bytes = std::mem::take(&mut self.buffer);
        let at = self.came - bytes.len() as u64;
        let file = Arc::clone(&self.file);
        let write = move || file.write_all_at(&bytes, at).map(|()| bytes);
        self.buffer = blocking(tokio::task::spawn_blocking(write).await)?;
        self.buffer.clear();
        Ok(())
    }
}

/// What a blocking task came to.
pub(super) fn blocking<T>(
    done: Result<std::io::Result<T>, tokio::task::JoinError>,
) -> Result<T, Failure> {
    let done = done.map_err(|e| Failure::System(format!("the spool cannot be used ({e})")))?;
    done.map_err(|e| in_words("write", &e))
}

impl Drop for Filling {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be removed now is when the node starts again.
            _ = std::fs::remove_file(&self.path);
            self.spool.abandoned(&self.label);
        }
    }
}
