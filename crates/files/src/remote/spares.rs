//! Connections that are open before they are needed.
//!
//! A transfer of a schedule has a TCP connection of its own (Cheng et al., §IV); that it is opened,
//! and the keys are proven, while the transfer before it is under way costs the schedule
//! no round trips. No byte of data has passed on a spare: its window is a new connection's.

use super::Remote;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use thalweg_mesh::member_dialer::{DialMemberError, MemberDialer};
use thalweg_wire::mesh::Name;
use tokio::time::Instant;

/// An older one is not used: a middlebox may have forgotten it.
const OLDEST: Duration = Duration::from_secs(60);

/// Spares of all nodes together; more than the hosts of any schedule with slots. Beyond that no
/// spare is opened.
const MOST: usize = 64;

/// Spares of one node: as many of its transfers begin at the same time, at most.
const EACH: usize = 4;

/// Spares of each node: as many as were missed at once.
#[derive(Clone, Debug)]
pub struct Spares {
    reach: MemberDialer,
    nodes: Arc<Mutex<BTreeMap<Name, Kept>>>,
}

/// What there is of a node's.
#[derive(Debug, Default)]
struct Kept {
    open: VecDeque<(Box<Remote>, Instant)>,
    /// Being opened.
    coming: usize,
    /// How many there should be.
    wanted: usize,
}

/// A remote that nothing has passed on.
#[derive(Debug)]
pub struct Fresh {
    /// The remote.
    pub remote: Remote,
    /// It was open before: the other end may have closed it.
    pub spare: bool,
}

impl Spares {
    /// None is open.
    pub fn new(reach: MemberDialer) -> Self {
        Self { reach, nodes: Arc::default() }
    }

    /// Who opens them.
    pub fn reach(&self) -> &MemberDialer {
        &self.reach
    }

    /// The spare, or a new connection; `next`: another spare is opened meanwhile.
    ///
    /// # Errors
    /// [`DialMemberError`].
    pub async fn take(&self, node: &Name, next: bool) -> Result<Fresh, DialMemberError> {
        let spare = self.spare(node);
        let fresh = match spare {
            Some(remote) => Fresh { remote, spare: true },
            None => Fresh { remote: Remote::open(&self.reach, node, &[]).await?, spare: false },
        };
        if next {
            self.prepare(node);
        }
        Ok(fresh)
    }

    /// Opens a spare, unless there is one, or as many as were missed.
    pub fn prepare(&self, node: &Name) {
        self.prepare_for(node, 1);
    }

    /// Opens spares until there are so many, `EACH` at most: transfers that are to begin at once.
    pub fn prepare_for(&self, node: &Name, transfers: usize) {
        for _ in 0..self.reserve(node, transfers) {
            let (this, node) = (self.clone(), node.clone());
            tokio::spawn(async move {
                // Who needs it will hear why there is none.
                let opened = Remote::open(&this.reach, &node, &[]).await.ok();
                let mut nodes = this.lock();
                let kept = nodes.entry(node).or_default();
                kept.coming = kept.coming.saturating_sub(1);
                kept.open.extend(opened.map(|remote| (Box::new(remote), Instant::now())));
            });
        }
    }

    /// How many are to be opened; they count as coming.
    fn reserve(&self, node: &Name, transfers: usize) -> usize {
        let mut nodes = self.lock();
        nodes.values_mut().for_each(Kept::forget_old);
        let all: usize = nodes.values().map(Kept::count).sum();
        let kept = nodes.entry(node.clone()).or_default();
        kept.wanted = kept.wanted.max(transfers).min(EACH);
        let more = kept.wanted.saturating_sub(kept.count()).min(MOST.saturating_sub(all));
        kept.coming += more;
        more
    }

    fn spare(&self, node: &Name) -> Option<Remote> {
        let mut nodes = self.lock();
        let kept = nodes.get_mut(node)?;
        kept.forget_old();
        let spare = kept.open.pop_front();
        if spare.is_none() {
            // Another one would have been of use.
            kept.wanted = (kept.wanted + 1).min(EACH);
        }
        spare.map(|(remote, _)| *remote)
    }

    /// A thread that panicked in here left whole entries.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Kept>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn count(&self) -> usize {
        self.open.len() + self.coming
    }

    fn forget_old(&mut self) {
        self.open.retain(|(_, since)| since.elapsed() < OLDEST);
    }
}
