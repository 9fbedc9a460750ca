//! An entry while it comes.

use super::{
    Spool,
    entry::{Label, Part, in_words},
};
use std::{fs::File, os::unix::fs::FileExt as _, path::PathBuf, sync::Arc};
use thalweg_wire::object::{Check, Failure, MAX_WHY};

/// What is written at once: few hops to the threads that may wait for the disk.
const BUFFER: usize = 256 * 1024;

/// Bytes of an entry's failures in words, all together: of more of them only that there were any. So
/// the label, and the reply that tells of it, are short whatever the other node says.
const WORDS: usize = 64 * 1024;

/// What a part takes in the label beside words.
const BESIDE: u64 = 64;

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
    /// Bytes of failures' words that are still kept.
    words: usize,
    finished: bool,
}

impl Filling {
    pub(super) fn new(spool: Spool, file: File, path: PathBuf, label: Label, most: u64) -> Self {
        let buffer = Vec::with_capacity(BUFFER);
        let file = Arc::new(file);
        Self { spool, file, path, label, came: 0, buffer, most, words: WORDS, finished: false }
    }

    /// Takes a whole part with its hash, which the caller has compared, or why it did not come.
    ///
    /// # Errors
    /// [`Failure::Full`] beyond what was asked for, or if the spool is full meanwhile;
    /// [`Failure::System`].
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
        let came = came.map_err(|why| {
            let why = why.cut(self.words.min(MAX_WHY));
            self.words = self.words.saturating_sub(why.text_len());
            why
        });
        let words = came.as_ref().err().map_or(0, Failure::text_len);
        self.spool.came(&self.label, size, BESIDE + words as u64)?;
        self.came += size;
        self.label.parts.push(Part { bytes: size, check: came });
        self.buffer.extend_from_slice(bytes);
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
