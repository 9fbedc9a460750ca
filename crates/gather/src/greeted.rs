//! Connections that the listings came by, for those who fetch.
//!
//! On a crowded path a new connection can cost seconds: a lost SYN alone costs one (RFC 6298 §2).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use thalweg_files::remote::Remote;

/// An older one is not used: a middlebox may have forgotten it.
const OLDEST: Duration = Duration::from_secs(60);

/// Open, idle remotes by source, at most one for each.
#[derive(Clone, Debug, Default)]
pub struct Greeted(Arc<Mutex<BTreeMap<u32, (Remote, Instant)>>>);

impl Greeted {
    /// Keeps a source's, until it is taken or all is dropped.
    pub fn keep(&self, source: u32, remote: Remote) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(source, (remote, Instant::now()));
    }

    /// A source's, once, if it is young.
    pub fn take(&self, source: u32) -> Option<Remote> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (remote, since) = open.remove(&source)?;
        (since.elapsed() < OLDEST).then_some(remote)
    }
}
