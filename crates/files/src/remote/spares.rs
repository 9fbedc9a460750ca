//! Spare connections, which are opened before they are needed.
//!
//! Each transfer of a schedule has a TCP connection of its own (Cheng et al., §IV). The connection is opened, and the
//! keys are proven, while the previous transfer is in progress, so that the schedule loses no round trips. No data has
//! passed on a spare, so its congestion window is that of a new connection.

use super::Remote;
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use thalweg_mesh::member_dialer::{DialMemberError, MemberDialer};
use thalweg_wire::mesh::Name;
use tokio::time::Instant;

/// The greatest age of a spare that is used: a middlebox may have forgotten an older one.
const MAX_AGE: Duration = Duration::from_secs(60);

/// The most spares of all nodes together: more than the hosts of any schedule with slots. Beyond it no spare is opened.
const MAX_SPARES: usize = 64;

/// The most spares of one node: the most transfers of a node that begin at the same time.
const MAX_PER_NODE: usize = 4;

/// The spares of all nodes. A node has as many as were missing at once before; cheap to clone.
#[derive(Clone, Debug)]
pub struct Spares {
    dialer: MemberDialer,
    nodes: Arc<Mutex<BTreeMap<Name, NodeSpares>>>,
}

/// The spares of one node.
#[derive(Debug, Default)]
struct NodeSpares {
    open: VecDeque<(Box<Remote>, Instant)>,
    /// The number of spares that are being opened.
    opening: usize,
    /// The number of spares that there should be.
    wanted: usize,
}

/// A remote over which no data has passed.
#[derive(Debug)]
pub struct FreshRemote {
    pub remote: Remote,
    /// Whether it was opened before as a spare: the other end may have closed it.
    pub spare: bool,
}

impl Spares {
    /// Creates the set without open spares.
    pub fn new(dialer: MemberDialer) -> Self {
        Self { dialer, nodes: Arc::default() }
    }

    /// The dialer that opens the spares.
    pub fn dialer(&self) -> &MemberDialer {
        &self.dialer
    }

    /// Returns a spare, or opens a new connection. With `next`, another spare is opened in the background.
    ///
    /// # Errors
    /// [`DialMemberError`].
    pub async fn take(&self, node: &Name, next: bool) -> Result<FreshRemote, DialMemberError> {
        let spare = self.spare(node);
        let fresh = match spare {
            Some(remote) => FreshRemote { remote, spare: true },
            None => {
                FreshRemote { remote: Remote::open(&self.dialer, node, &[]).await?, spare: false }
            }
        };
        if next {
            self.prepare(node);
        }
        Ok(fresh)
    }

    /// Opens spares in the background until there are as many as were missing before, and at least one.
    pub fn prepare(&self, node: &Name) {
        self.prepare_for(node, 1);
    }

    /// Opens spares in the background for this many transfers that will begin at once, at most `MAX_PER_NODE`.
    pub fn prepare_for(&self, node: &Name, transfers: usize) {
        for _ in 0..self.reserve(node, transfers) {
            let (this, node) = (self.clone(), node.clone());
            tokio::spawn(async move {
                // An error is ignored: the transfer that needs a connection gets its own error.
                let opened = Remote::open(&this.dialer, &node, &[]).await.ok();
                let mut nodes = this.lock();
                let spares = nodes.entry(node).or_default();
                spares.opening = spares.opening.saturating_sub(1);
                spares.open.extend(opened.map(|remote| (Box::new(remote), Instant::now())));
            });
        }
    }

    /// Returns how many spares to open, and counts them as being opened.
    fn reserve(&self, node: &Name, transfers: usize) -> usize {
        let mut nodes = self.lock();
        nodes.values_mut().for_each(NodeSpares::forget_old);
        let all: usize = nodes.values().map(NodeSpares::count).sum();
        let spares = nodes.entry(node.clone()).or_default();
        spares.wanted = spares.wanted.max(transfers).min(MAX_PER_NODE);
        let more = spares.wanted.saturating_sub(spares.count()).min(MAX_SPARES.saturating_sub(all));
        spares.opening += more;
        more
    }

    fn spare(&self, node: &Name) -> Option<Remote> {
        let mut nodes = self.lock();
        let spares = nodes.get_mut(node)?;
        spares.forget_old();
        let spare = spares.open.pop_front();
        if spare.is_none() {
            // Another spare would have been used.
            spares.wanted = (spares.wanted + 1).min(MAX_PER_NODE);
        }
        spare.map(|(remote, _)| *remote)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, NodeSpares>> {
        self.nodes.lock()
    }
}

impl NodeSpares {
    fn count(&self) -> usize {
        self.open.len() + self.opening
    }

    fn forget_old(&mut self) {
        self.open.retain(|(_, since)| since.elapsed() < MAX_AGE);
    }
}
