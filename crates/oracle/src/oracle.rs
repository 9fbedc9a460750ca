//! The oracle's handle and what it holds.

use crate::{
    Caller, Config, Event, OracleError, Refusal,
    election::Election,
    limits::{JoinGate, PerKey},
    measure::Measuring,
    places::Places,
    status::Sightings,
    store::Store,
};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use thalweg_net::PrivateKey;
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Signer as _,
    mesh::{Member, Role, Roster},
};
use tokio::sync::{Mutex, Semaphore, watch};

/// The control plane of one mesh; cheap to clone.
#[derive(Clone, Debug)]
pub struct Oracle {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// Signs rosters.
    pub key: PrivateKey,
    /// The TLS key of the node that this oracle runs in.
    pub node: NodeId,
    pub dir: PathBuf,
    pub store: Store,
    pub config: Config,
    pub newest: watch::Sender<Arc<Newest>>,
    pub bytes: watch::Sender<Arc<[u8]>>,
    /// The version of the copy beside the database; held while it is written.
    pub copied: Mutex<u64>,
    /// A new roster is due although the newest is young: the start could not publish one.
    pub due: AtomicBool,
    /// An empty database of a server becomes this mesh's.
    pub fills: AtomicBool,
    pub election: Election,
    pub measuring: Arc<Measuring>,
    pub sightings: Sightings,
    pub joins: JoinGate,
    /// Requests that wait for a roster.
    pub waiting: Semaphore,
    pub waits_each: PerKey,
    /// Connections of members.
    pub members: Arc<Places>,
    /// Connections for joining, and of strangers.
    pub strangers: Arc<Places>,
    /// Those beyond these bounds.
    pub turned_away: Arc<Places>,
    pub stopping: watch::Sender<bool>,
}

/// The newest roster, as a value and as signed bytes.
#[derive(Debug)]
pub(crate) struct Newest {
    pub roster: Roster,
    pub bytes: Arc<[u8]>,
}

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Member,
    Admin,
}

/// File names in the oracle's directory.
pub(crate) mod file {
    pub const KEY: &str = "mesh.key";
    pub const DATABASE: &str = "oracle.db";
    pub const COPY: &str = "roster";
    /// Where the state is, if not in [`DATABASE`].
    pub const ELSEWHERE: &str = "database";
}

impl Oracle {
    /// The mesh's key.
    pub fn mesh(&self) -> NodeId {
        self.inner.key.id()
    }

    /// Told of each new roster: its signed bytes, as `Signed::<Roster>::open` reads them.
    pub fn roster(&self) -> watch::Receiver<Arc<[u8]>> {
        self.inner.bytes.subscribe()
    }

    /// What measuring has come to since this oracle was opened, for metrics. Waits for nothing.
    pub fn measured(&self) -> crate::MeasureCounts {
        self.inner.measuring.counts()
    }

    /// Whether this oracle schedules now.
    pub fn is_elected(&self) -> bool {
        matches!(self.standing(), crate::election::Standing::Elected { .. })
    }

    pub(crate) fn newest(&self) -> Arc<Newest> {
        self.inner.newest.borrow().clone()
    }

    pub(crate) fn now(&self) -> WallTime {
        self.inner.config.clock.now()
    }

    pub(crate) fn tell(&self, event: &Event) {
        (self.inner.config.events)(event);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.inner.dir.join(name)
    }

    /// Who the caller is, for records: a member's name or `local`.
    ///
    /// Asked of the newest roster at each request, so that a revoked member's open
    /// connection is of no use to it.
    pub(crate) fn authorise(&self, caller: &Caller, access: Access) -> Result<Actor, OracleError> {
        let Some(key) = caller.key() else { return Ok(Actor(None)) };
        let newest = self.newest();
        let member = newest.roster.by_key(&key).ok_or(Refusal::NotMember)?;
        if access == Access::Admin && !member.is(Role::Admin) {
            return Err(Refusal::NotAdmin(admins(&newest.roster)).into());
        }
        Ok(Actor(Some(member.clone())))
    }

    /// A node's name, for people.
    pub(crate) fn name_of(&self, node: &NodeId) -> String {
        let newest = self.newest();
        let member = newest.roster.by_key(node);
        member.map_or_else(|| format!("{node:?}"), |member| member.name.to_string())
    }

    pub(crate) fn set_due(&self, due: bool) -> bool {
        self.inner.due.swap(due, Ordering::Relaxed)
    }
}

/// Whoever asks; none: a local process.
#[derive(Clone, Debug)]
pub(crate) struct Actor(pub Option<Member>);

impl Actor {
    pub fn label(&self) -> &str {
        self.0.as_ref().map_or("local", |member| member.name.as_str())
    }
}

fn admins(roster: &Roster) -> String {
    /// Names enough to find somebody.
    const SHOWN: usize = 5;
    let admins = roster.members.iter().filter(|m| m.is(Role::Admin));
    let names: Vec<_> = admins.map(|m| m.name.as_str()).take(SHOWN).collect();
    names.join(", ")
}

/// The error about a file.
pub(crate) fn file_error(file: &Path) -> impl Fn(std::io::Error) -> OracleError {
    move |source| OracleError::File { file: file.into(), source }
}
