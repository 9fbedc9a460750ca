//! Connections on which the listings came, kept for the transfers.
//!
//! On a congested path a new connection can cost seconds: a lost SYN alone costs one (RFC 6298 §2).

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_files::remote::Remote;

/// The maximum age of an idle connection: a middlebox may have forgotten an older one.
const OLDEST: Duration = Duration::from_secs(60);

/// Open, idle connections by source, at most one per source.
#[derive(Clone, Debug, Default)]
pub struct IdleRemotes(Arc<Mutex<BTreeMap<u32, (Remote, Instant)>>>);

impl IdleRemotes {
    /// Keeps a source's connection until it is taken or the set is dropped.
    pub fn keep(&self, source: u32, remote: Remote) {
        let mut open = self.0.lock();
        open.insert(source, (remote, Instant::now()));
    }

    /// Takes a source's connection, if there is one younger than 60 s.
    pub fn take(&self, source: u32) -> Option<Remote> {
        let mut open = self.0.lock();
        let (remote, since) = open.remove(&source)?;
        (since.elapsed() < OLDEST).then_some(remote)
    }
}
