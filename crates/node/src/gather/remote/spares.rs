//! Connections that are open before they are needed.
//!
//! A transfer of a schedule has a TCP connection of its own (Cheng et al., §IV); that it is opened,
//! and the keys are proven, while the transfer before it is under way costs the schedule
//! no round trips. No byte of data has passed on a spare: its window is a new connection's.

use super::{Reach, ReachError, Remote};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use thalweg_wire::mesh::Name;
use tokio::time::Instant;

/// An older one is not used: a middlebox may have forgotten it.
const OLDEST: Duration = Duration::from_secs(60);

/// Nodes that there is a spare for; more than the hosts of any schedule with slots.
const MOST: usize = 64;

/// At most one spare for each node.
#[derive(Clone, Debug)]
pub struct Spares {
    reach: Reach,
    open: Arc<Mutex<BTreeMap<Name, Spare>>>,
}

#[derive(Debug)]
enum Spare {
    /// It is being opened.
    Coming,
    Open(Box<Remote>, Instant),
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
    pub fn new(reach: Reach) -> Self {
        Self { reach, open: Arc::default() }
    }

    /// Who opens them.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The spare, or a new connection; `next`: another spare is opened meanwhile.
    ///
    /// # Errors
    /// [`ReachError`].
    pub async fn take(&self, node: &Name, next: bool) -> Result<Fresh, ReachError> {
        let spare = self.spare(node);
        let fresh = match spare {
            Some(remote) => Fresh { remote, spare: true },
            None => Fresh { remote: self.reach.open(node, &[]).await?, spare: false },
        };
        if next {
            self.prepare(node);
        }
        Ok(fresh)
    }

    /// Opens a spare, unless there is one.
    pub fn prepare(&self, node: &Name) {
        if !self.reserve(node) {
            return;
        }
        let (this, node) = (self.clone(), node.clone());
        tokio::spawn(async move {
            // Who needs it will hear why there is none.
            let opened = this.reach.open(&node, &[]).await.ok();
            let mut open = this.lock();
            match opened {
                Some(remote) => {
                    open.insert(node, Spare::Open(Box::new(remote), Instant::now()));
                }
                None => drop(open.remove(&node)),
            }
        });
    }

    fn reserve(&self, node: &Name) -> bool {
        let mut open = self.lock();
        open.retain(|_, spare| spare.is_fresh());
        if open.len() >= MOST || open.contains_key(node) {
            return false;
        }
        open.insert(node.clone(), Spare::Coming);
        true
    }

    fn spare(&self, node: &Name) -> Option<Remote> {
        match self.lock().entry(node.clone()) {
            Entry::Occupied(found) if matches!(found.get(), Spare::Open(..)) => {
                match found.remove() {
                    Spare::Open(remote, since) if since.elapsed() < OLDEST => Some(*remote),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A thread that panicked in here left whole entries.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Name, Spare>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spare {
    fn is_fresh(&self) -> bool {
        match self {
            Self::Coming => true,
            Self::Open(_, since) => since.elapsed() < OLDEST,
        }
    }
}
