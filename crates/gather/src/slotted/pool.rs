//! Channels for messages, kept open: no transfer's data passes on them.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use thalweg_files::remote::{Remote, RemoteError};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_wire::{
    mesh::Name,
    object::{Failure, Reply, Request},
};
use thiserror::Error;

/// Idle channels to one node; a fetch holds one as long as it takes. A further one is closed.
const MOST: usize = 16;

/// A request came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The node says no.
    #[error("{0}")]
    Refused(Failure),
    /// It cannot be reached, or broke off.
    #[error("{0}")]
    Gone(String),
}

/// The channels.
#[derive(Debug)]
pub struct Pool {
    reach: MemberDialer,
    idle: Mutex<BTreeMap<Name, Vec<Remote>>>,
    messages: AtomicU64,
}

impl Pool {
    /// None is open.
    pub fn new(reach: MemberDialer) -> Self {
        Self { reach, idle: Mutex::default(), messages: AtomicU64::new(0) }
    }

    /// How many requests were sent.
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// A request and its one reply.
    ///
    /// # Errors
    /// [`Fault`].
    pub async fn request(&self, node: &Name, request: &Request) -> Result<Reply, Fault> {
        self.messages.fetch_add(1, Ordering::Relaxed);
        if let Some(remote) = self.take(node) {
            match self.ask(remote, request).await {
                // Most often it was closed while it waited; a new one tells.
                Err(Fault::Gone(_)) => {}
                done => return done,
            }
        }
        let opened = Remote::open(&self.reach, node, &[]).await;
        self.ask(opened.map_err(|e| Fault::Gone(e.to_string()))?, request).await
    }

    /// Opens channels until so many to the node are idle: requests that are to be under way at
    /// once wait for no connection.
    pub async fn prepare(&self, node: &Name, channels: usize) {
        let have = self.lock().get(node).map_or(0, Vec::len);
        let opening = (have..channels.min(MOST)).map(|_| Remote::open(&self.reach, node, &[]));
        let opened = futures_util::future::join_all(opening).await;
        // Who needs another will hear why there is none.
        opened.into_iter().flatten().for_each(|remote| self.put(remote));
    }

    async fn ask(&self, mut remote: Remote, request: &Request) -> Result<Reply, Fault> {
        let reply = match remote.request(request).await {
            Ok(reply) => Ok(reply),
            Err(RemoteError::Refused { why, .. }) => Err(Fault::Refused(why)),
            Err(why) => return Err(Fault::Gone(why.to_string())),
        };
        self.put(remote);
        reply
    }

    fn put(&self, remote: Remote) {
        let mut idle = self.lock();
        let idle = idle.entry(remote.node().clone()).or_default();
        if idle.len() < MOST {
            idle.push(remote);
        }
    }

    fn take(&self, node: &Name) -> Option<Remote> {
        self.lock().get_mut(node)?.pop()
    }

    /// A thread that panicked in here left whole entries.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Vec<Remote>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
