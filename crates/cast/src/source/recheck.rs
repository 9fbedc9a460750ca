//! Checks the object again if a receiver reports data from the source that does not match its description.
//!
//! Each read checks the file's length and modification time. A change that restores the time, or one by a memory
//! mapping, is found only here, by reading the whole object. A receiver that reports falsely causes nothing but such
//! reads, one at a time.

use crate::store::Store;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};
use thalweg_wire::manifest::CHUNK_BYTES;
use tokio::{sync::watch, task::spawn_blocking};

/// Whether a check is running.
#[derive(Clone, Debug, Default)]
pub struct ObjectRecheck(Arc<AtomicBool>);

impl ObjectRecheck {
    /// Checks the object, unless a check is running. If it has changed, reports that to `broken`.
    pub fn start(&self, store: &Arc<Store>, broken: &watch::Sender<Option<String>>) {
        if self.0.swap(true, SeqCst) {
            return;
        }
        let (is_on, store, broken) = (Arc::clone(&self.0), Arc::clone(store), broken.clone());
        spawn_blocking(move || {
            if let Err(why) = check(&store) {
                broken.send_replace(Some(why.to_string()));
            }
            is_on.store(false, SeqCst);
        });
    }
}

fn check(store: &Store) -> io::Result<()> {
    let manifest = &store.known.manifest;
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    for chunk in 0..manifest.chunks() {
        let Some(range) = manifest.range(chunk) else { break };
        let bytes = &mut buffer[..(range.end - range.start) as usize];
        store.files.read(range.start, bytes)?;
        if manifest.verify(chunk, bytes).is_err() {
            let at = range.start;
            return Err(io::Error::other(format!(
                "the content has changed, at byte {at} or later"
            )));
        }
    }
    Ok(())
}
