//! A landing in memory.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::{ops::Range, sync::Mutex};
use thalweg_files::{
    inventory::FileNo,
    land::{Land, LandError},
};
use tokio::sync::watch;

/// Files in memory, by number, and those that were given up.
#[derive(Debug)]
pub struct Memory {
    files: Mutex<Vec<Vec<Option<u8>>>>,
    given_up: Mutex<Vec<(FileNo, String)>>,
    /// The number of bytes written.
    came: watch::Sender<u64>,
    /// Writers wait after this many bytes.
    most: watch::Sender<u64>,
}

impl Memory {
    /// Creates empty files of these sizes.
    pub fn new(sizes: &[u64]) -> Self {
        let files = sizes.iter().map(|size| vec![None; *size as usize]).collect();
        let (came, most) = (watch::Sender::new(0), watch::Sender::new(u64::MAX));
        Self { files: Mutex::new(files), given_up: Mutex::default(), came, most }
    }

    /// From now on writers wait once this many bytes have been written.
    pub fn stop_at(&self, most: u64) {
        self.most.send_replace(most);
    }

    /// Waits until this many bytes have been written.
    pub async fn has(&self, bytes: u64) {
        self.came.subscribe().wait_for(|came| *came >= bytes).await.unwrap();
    }

    /// The missing ranges of a file.
    pub fn missing(&self, file: usize) -> Vec<Range<u64>> {
        let files = self.files.lock().unwrap();
        let mut missing: Vec<Range<u64>> = Vec::new();
        for (at, _) in (0..).zip(&files[file]).filter(|(_, byte)| byte.is_none()) {
            match missing.last_mut().filter(|last| last.end == at) {
                Some(last) => last.end = at + 1,
                None => missing.push(at..at + 1),
            }
        }
        missing
    }

    /// A file's bytes; `None` if some are missing.
    pub fn file(&self, file: usize) -> Option<Vec<u8>> {
        self.files.lock().unwrap()[file].iter().copied().collect()
    }

    /// Whether all bytes that were written of a file are of this content.
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
        Box::pin(async move {
            let came = *self.came.borrow();
            self.most.subscribe().wait_for(|most| came < *most).await.unwrap();
            let mut files = self.files.lock().unwrap();
            let place = &mut files[file.0 as usize][at as usize..][..bytes.len()];
            place.iter_mut().zip(&bytes).for_each(|(place, byte)| *place = Some(*byte));
            drop(files);
            self.came.send_modify(|came| *came += bytes.len() as u64);
            Ok(())
        })
    }

    fn give_up(&self, file: FileNo, why: String) {
        self.given_up.lock().unwrap().push((file, why));
    }
}
