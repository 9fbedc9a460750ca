//! A landing in memory.

use bytes::Bytes;
use std::sync::Mutex;
use thalweg_node::{
    daemon::BoxFuture,
    gather::{FileNo, Land, LandError},
};

/// Files in memory, by number, and those that were given up.
#[derive(Debug, Default)]
pub struct Memory {
    files: Mutex<Vec<Vec<Option<u8>>>>,
    given_up: Mutex<Vec<(FileNo, String)>>,
}

impl Memory {
    /// Files of these sizes, nothing of which is here.
    pub fn new(sizes: &[u64]) -> Self {
        let files = sizes.iter().map(|size| vec![None; *size as usize]).collect();
        Self { files: Mutex::new(files), given_up: Mutex::default() }
    }

    /// A file's bytes; `None` if some are missing.
    pub fn file(&self, file: usize) -> Option<Vec<u8>> {
        self.files.lock().unwrap()[file].iter().copied().collect()
    }

    /// Whether all that was ever written of a file is of this content.
    pub fn is_of(&self, file: usize, content: &[u8]) -> bool {
        let files = self.files.lock().unwrap();
        files[file].iter().zip(content).all(|(here, there)| here.is_none_or(|here| here == *there))
    }

    /// The files that were given up, and why.
    pub fn given_up(&self) -> Vec<(FileNo, String)> {
        self.given_up.lock().unwrap().clone()
    }
}

impl Land for Memory {
    fn write(&self, file: FileNo, at: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), LandError>> {
        let mut files = self.files.lock().unwrap();
        let place = &mut files[file.0 as usize][at as usize..][..bytes.len()];
        place.iter_mut().zip(&bytes).for_each(|(place, byte)| *place = Some(*byte));
        Box::pin(async { Ok(()) })
    }

    fn give_up(&self, file: FileNo, why: String) {
        self.given_up.lock().unwrap().push((file, why));
    }
}
