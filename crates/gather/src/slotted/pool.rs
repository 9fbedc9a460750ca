//! Keeps channels for messages open; no data of transfers passes through them.

use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};
use thalweg_files::remote::{Remote, RemoteError};
use thalweg_mesh::member_dialer::MemberDialer;
use thalweg_wire::{
    mesh::Name,
    object::{Failure, Reply, Request},
};
use thiserror::Error;

/// The maximum number of idle channels to one node; any further one is closed. A fetch occupies one for its whole
/// duration.
const MOST: usize = 16;

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The node refused it.
    #[error("{0}")]
    Refused(Failure),
    /// The node cannot be reached, or broke off.
    #[error("{0}")]
    Unreachable(String),
}

/// The channels.
#[derive(Debug)]
pub struct ChannelPool {
    dialer: MemberDialer,
    idle: Mutex<BTreeMap<Name, Vec<Remote>>>,
    messages: AtomicU64,
}

impl ChannelPool {
    /// Creates an empty pool.
    pub fn new(dialer: MemberDialer) -> Self {
        Self { dialer, idle: Mutex::default(), messages: AtomicU64::new(0) }
    }

    /// The number of requests sent.
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    /// Sends a request and returns its one reply.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn request(&self, node: &Name, request: &Request) -> Result<Reply, RequestError> {
        self.messages.fetch_add(1, Ordering::Relaxed);
        if let Some(remote) = self.take(node) {
            match self.ask(remote, request).await {
                // Usually the channel was closed while it was idle; a new one shows whether the node is gone.
                Err(RequestError::Unreachable(_)) => {}
                done => return done,
            }
        }
        let opened = Remote::open(&self.dialer, node, &[]).await;
        self.ask(opened.map_err(|e| RequestError::Unreachable(e.to_string()))?, request).await
    }

    /// Opens channels until this many to the node are idle, so that concurrent requests wait for no connection.
    pub async fn prepare(&self, node: &Name, channels: usize) {
        let have = self.idle.lock().get(node).map_or(0, Vec::len);
        let opening = (have..channels.min(MOST)).map(|_| Remote::open(&self.dialer, node, &[]));
        let opened = futures_util::future::join_all(opening).await;
        // Errors are ignored: a later request that needs a channel reports its own.
        opened.into_iter().flatten().for_each(|remote| self.put(remote));
    }

    async fn ask(&self, mut remote: Remote, request: &Request) -> Result<Reply, RequestError> {
        let reply = match remote.request(request).await {
            Ok(reply) => Ok(reply),
            Err(RemoteError::Refused { why, .. }) => Err(RequestError::Refused(why)),
            Err(why) => return Err(RequestError::Unreachable(why.to_string())),
        };
        self.put(remote);
        reply
    }

    fn put(&self, remote: Remote) {
        let mut idle = self.idle.lock();
        let idle = idle.entry(remote.node().clone()).or_default();
        if idle.len() < MOST {
            idle.push(remote);
        }
    }

    fn take(&self, node: &Name) -> Option<Remote> {
        self.idle.lock().get_mut(node)?.pop()
    }
}
