//! A landing in memory that can be stopped.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};
use thalweg_files::{
    inventory::FileNo,
    land::{Land, LandError},
};
use tokio::sync::watch;

/// Files in memory; after `gate` bytes nothing more is accepted until the gate is opened.
#[derive(Debug)]
pub struct Gated {
    files: Mutex<Vec<Vec<u8>>>,
    given_up: Mutex<Vec<(FileNo, String)>>,
    came: AtomicU64,
    gate: u64,
    reached: watch::Sender<bool>,
    open: watch::Sender<bool>,
}

impl Gated {
    /// Creates empty files of these sizes.
    pub fn new(sizes: impl Iterator<Item = u64>, gate: u64) -> Self {
        Self {
            files: Mutex::new(sizes.map(|size| vec![0; size as usize]).collect()),
            given_up: Mutex::default(),
            came: AtomicU64::new(0),
            gate,
            reached: watch::Sender::new(false),
            open: watch::Sender::new(gate == u64::MAX),
        }
    }

    /// Waits until the gate is reached.
    pub async fn reached(&self) {
        self.reached.subscribe().wait_for(|reached| *reached).await.unwrap();
    }

    pub fn open(&self) {
        self.open.send_replace(true);
    }

    pub fn file(&self, file: usize) -> Vec<u8> {
        self.files.lock().unwrap()[file].clone()
    }

    pub fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }

    pub fn given_up(&self) -> Vec<(FileNo, String)> {
        self.given_up.lock().unwrap().clone()
    }
}

impl Land for Gated {
    fn write(&self, file: FileNo, at: u64, bytes: Bytes) -> BoxFuture<'_, Result<(), LandError>> {
        let came = self.came.fetch_add(bytes.len() as u64, Ordering::Relaxed) + bytes.len() as u64;
        self.files.lock().unwrap()[file.0 as usize][at as usize..][..bytes.len()]
            .copy_from_slice(&bytes);
        Box::pin(async move {
            if came >= self.gate {
                self.reached.send_replace(true);
                // The sender lives as long as this.
                _ = self.open.subscribe().wait_for(|open| *open).await;
            }
            Ok(())
        })
    }

    fn give_up(&self, file: FileNo, why: String) {
        self.given_up.lock().unwrap().push((file, why));
    }
}
