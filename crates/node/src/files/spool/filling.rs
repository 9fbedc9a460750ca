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
    /// Bytes of the part that comes now, written ones included.
    part: u64,
    /// Not written yet.
    buffer: Vec<u8>,
    hasher: blake3::Hasher,
    /// The most bytes that may come.
    most: u64,
    finished: bool,
}

impl Filling {
    pub(super) fn new(spool: Spool, file: File, path: PathBuf, label: Label, most: u64) -> Self {
        let buffer = Vec::with_capacity(BUFFER);
        let (file, hasher) = (Arc::new(file), blake3::Hasher::new());
        Self { spool, file, path, label, part: 0, buffer, hasher, most, finished: false }
    }

    /// Takes bytes of the part that comes now.
    ///
    /// # Errors
    /// [`Failure::Full`] beyond what was asked for; [`Failure::System`].
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let came = self.label.bytes() + self.part + bytes.len() as u64;
        if came > self.most {
            return Err(Failure::Full(came - self.most));
        }
        self.hasher.update(bytes);
        self.part += bytes.len() as u64;
        self.buffer.extend_from_slice(bytes);
        self.spool.came(&self.label, bytes.len() as u64);
        if self.buffer.len() >= BUFFER { self.flush().await } else { Ok(()) }
    }

    /// The part is over: with the hash that the sender says, or why it is not there.
    ///
    /// # Errors
    /// [`Failure::System`]; also if the hash is not that of what came.
    pub async fn end_part(&mut self, said: Result<Check, Failure>) -> Result<(), Failure> {
        self.flush().await?;
        let came = Check(*self.hasher.finalize().as_bytes());
        self.hasher.reset();
        let bytes = std::mem::take(&mut self.part);
        let part = match said {
            Ok(check) if check == came => Part { bytes, check: Ok(check) },
            Ok(_) => {
                let why = "what came has another hash than its sender says".to_owned();
                return Err(Failure::System(why));
            }
            // What came of it is written over by the next.
            Err(why) => {
                self.spool.lost(&self.label, bytes);
                Part { bytes: 0, check: Err(why) }
            }
        };
        self.label.parts.push(part);
        Ok(())
    }

    /// All parts are here: it can be read from now on. Returns what came of the parts.
    ///
    /// # Errors
    /// [`Failure::System`].
    pub async fn finish(mut self) -> Result<Vec<Result<Check, Failure>>, Failure> {
        let (file, label) = (Arc::clone(&self.file), self.label.clone());
        let written = tokio::task::spawn_blocking(move || label.write(&file)).await;
        let length = blocking(written)?;
        let shown = self.path.with_extension("");
        std::fs::rename(&self.path, shown).map_err(|e| in_words("rename", &e))?;
        self.finished = true;
        self.spool.finished(&self.label, length);
        Ok(self.label.parts.iter().map(|part| part.check.clone()).collect())
    }

    /// The most bytes of its collection at a time so far.
    pub fn most(&self) -> u64 {
        self.spool.most(self.label.owner, self.label.id.job)
    }

    /// On threads of their own: the disk may be slow.
    async fn flush(&mut self) -> Result<(), Failure> {
        let bytes = std::mem::take(&mut self.buffer);
        let at = self.label.bytes() + self.part - bytes.len() as u64;
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
            let came = self.label.bytes() + self.part;
            self.spool.abandoned(&self.label, came);
        }
    }
}
