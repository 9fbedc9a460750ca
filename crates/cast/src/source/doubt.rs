//! A receiver says that the source gave it something else than it had described.
//!
//! Each file's length and time are looked at with every read; who changes a file and sets its time
//! back, or changes it by a mapping, is found here: the object is read once more. One that lies about
//! the source does no harm but that reading, once at a time.

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

/// Whether the object is being looked at.
#[derive(Clone, Debug, Default)]
pub struct Doubt(Arc<AtomicBool>);

impl Doubt {
    /// Looks whether the object is what it was; if not, `broken` says so.
    pub fn raise(&self, store: &Arc<Store>, broken: &watch::Sender<Option<String>>) {
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
            return Err(io::Error::other(format!("its content has changed, from byte {at} on")));
        }
    }
    Ok(())
}
