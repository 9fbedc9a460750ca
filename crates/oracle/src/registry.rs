//! The members and the roster: the database, the newest signed roster, its copy on disk.
//!
//! Each change is one database transaction, which also signs and stores the next roster. Then the roster is announced,
//! then copied. A database that is behind the newest signed roster first receives that roster's members.

use crate::{
    Caller, Config, Database, DatabaseName, Event, OracleError, Refusal,
    admission::admissible,
    mesh_keys::MeshKeys,
    reach::{with_addresses, with_relays},
    roster_copy,
    sightings::Sightings,
    store::{MeshRow, Store, StoreError, Write},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use thalweg_units::{NodeId, WallTime};
use thalweg_wire::{
    Destination,
    mesh::{
        AddressesReply, Member, MemberStatus, Name, Predecessor, Role, Roster, RosterRank, Rule,
        StatusReply,
    },
};
use tokio::sync::{Mutex, watch};

/// A roster is valid from this long before its creation, so that a member whose clock is behind accepts it. Twice what
/// hosts without NTP drift in a week at 100 ppm, and far less than the time scale of revocations and expiry.
pub(crate) const BEFORE: Duration = Duration::from_secs(120);
/// How long an ended token is remembered, so that a late user of it is told why it is refused.
const TOKENS_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long events are remembered: a year and a margin.
const EVENTS_KEPT: Duration = Duration::from_secs(400 * 24 * 3600);

/// File names in the oracle's directory.
pub(crate) mod file {
    /// The oracle's private key.
    pub const KEY: &str = "mesh.key";
    /// The root key, until its owner moves it to a safe place.
    pub const ROOT: &str = "root.key";
    /// The SQLite database with the state.
    pub const DATABASE: &str = "oracle.db";
    /// A copy of the newest signed roster, from which a lost database is filled.
    pub const COPY: &str = "roster";
    /// Names the database that holds the state, if that is not [`DATABASE`].
    pub const ELSEWHERE: &str = "database";
}

/// The newest roster, parsed and as signed bytes.
#[derive(Debug)]
pub(crate) struct SignedRoster {
    pub roster: Roster,
    pub bytes: Arc<[u8]>,
}

/// The role that a request requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Member,
    Admin,
}

/// The member that makes a request; `None`: a local process.
#[derive(Clone, Debug)]
pub(crate) struct Actor(pub Option<Member>);

impl Actor {
    /// The member's name for events; `local` for this host.
    pub fn label(&self) -> &str {
        self.0.as_ref().map_or("local", |member| member.name.as_str())
    }
}

fn admins(roster: &Roster) -> String {
    /// Enough names for a person to find an admin.
    const SHOWN: usize = 5;
    let admins = roster.members.iter().filter(|m| m.is(Role::Admin));
    let names: Vec<_> = admins.map(|m| m.name.as_str()).take(SHOWN).collect();
    names.join(", ")
}

/// The state of the mesh, and the only way to change it.
#[derive(Debug)]
pub(crate) struct Registry {
    /// Sign rosters.
    pub keys: MeshKeys,
    /// The TLS key of the node that this oracle runs in.
    pub node: NodeId,
    dir: PathBuf,
    pub store: Store,
    pub config: Config,
    pub newest: watch::Sender<Arc<SignedRoster>>,
    pub bytes: watch::Sender<Arc<[u8]>>,
    /// The rank of the copy beside the database. The lock is held while the copy is written.
    copied: Mutex<Option<RosterRank>>,
    /// A new roster is due although the newest is young, because none could be published at the start.
    due: AtomicBool,
    /// An empty database of a server may be filled with this mesh.
    fills: AtomicBool,
    sightings: Sightings,
}

impl Registry {
    /// Opens the state in `dir` without publishing. See [`crate::Oracle::open`].
    pub(crate) async fn open(
        dir: &Path,
        node: NodeId,
        config: Config,
    ) -> Result<Self, OracleError> {
        let keys = MeshKeys::load(dir)?;
        let cached = config.cached.as_deref();
        let copy = newer(
            read_copy(&dir.join(file::COPY), &keys, &config)?,
            cached.map(|file| read_copy(file, &keys, &config)).transpose()?.flatten(),
        );
        let store = database(dir, &keys, copy.is_some(), &config).await?;
        let marker = DatabaseMarker::read(dir, &config.database)?;
        let kept = initial_roster(&store, &keys, copy, marker.fills, &config).await?;
        keys.check_current(&kept.roster)?;
        marker.write()?;
        if !kept.roster.members.iter().any(|m| m.node == Some(node)) {
            return Err(OracleError::OtherNode { dir: dir.into(), node });
        }
        Ok(Self {
            keys,
            node,
            dir: dir.into(),
            store,
            config,
            bytes: watch::Sender::new(kept.bytes.clone()),
            newest: watch::Sender::new(kept),
            copied: Mutex::new(None),
            due: AtomicBool::new(true),
            fills: AtomicBool::new(marker.fills),
            sightings: Sightings::default(),
        })
    }

    /// The mesh's root key.
    pub(crate) fn mesh(&self) -> NodeId {
        self.keys.root()
    }

    pub(crate) fn newest(&self) -> Arc<SignedRoster> {
        self.newest.borrow().clone()
    }

    pub(crate) fn now(&self) -> WallTime {
        self.config.clock.now()
    }

    pub(crate) fn emit(&self, event: &Event) {
        (self.config.events)(event);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Checks that the caller has the required role. Returns the member, or none for a local process.
    ///
    /// Each request checks the newest roster, so a revoked member's open connection is useless to it.
    pub(crate) fn authorise(&self, caller: &Caller, access: Access) -> Result<Actor, OracleError> {
        let Some(key) = caller.key() else { return Ok(Actor(None)) };
        let newest = self.newest();
        let member = newest.roster.by_key(&key).ok_or(Refusal::NotMember)?;
        if access == Access::Admin && !member.is(Role::Admin) {
            return Err(Refusal::NotAdmin(admins(&newest.roster)).into());
        }
        Ok(Actor(Some(member.clone())))
    }

    /// A node's name for messages.
    pub(crate) fn name_of(&self, node: &NodeId) -> String {
        let newest = self.newest();
        let member = newest.roster.by_key(node);
        member.map_or_else(|| format!("{node:?}"), |member| member.name.to_string())
    }

    pub(crate) fn set_due(&self, due: bool) -> bool {
        self.due.swap(due, Ordering::Relaxed)
    }

    /// Publishes a new version, because the state may have been restored from an old backup.
    pub(crate) async fn start(&self) -> Result<(), OracleError> {
        match self.renew().await {
            // A locked or unreachable database can be written later; a damaged one cannot.
            Err(OracleError::Store(error)) if error.may_pass() => {
                self.emit(&Event::Trouble(error.to_string()));
                Ok(())
            }
            done => done,
        }
    }

    /// Begins a write transaction. A database behind the newest signed roster was restored from a backup or is new: it
    /// first receives that roster's members.
    pub(crate) async fn begin(&self) -> Result<Write<'_>, OracleError> {
        let mut write = self.store.write().await?;
        let (stored, newest) = (self.rank_in(&mut write).await?, self.newest());
        if stored < newest.roster.rank() {
            restore(&mut write, &newest, self.now()).await?;
            let database = stored.version;
            self.emit(&Event::Restored { database, copy: newest.roster.version });
        }
        Ok(write)
    }

    /// The rank of the roster in the database, which must belong to this mesh. An empty database of a server becomes this
    /// mesh's: the old one was lost, or the state moves there.
    async fn rank_in(&self, write: &mut Write<'_>) -> Result<RosterRank, OracleError> {
        let place = write.place().clone();
        match (write.mesh().await?, &place) {
            (Some(mesh), _) if mesh.mesh == self.mesh() => Ok(stored_rank(&self.keys, mesh)),
            (Some(mesh), _) => {
                let found = format!("{:?}", mesh.mesh);
                Err(OracleError::OtherMesh { place, found })
            }
            (None, DatabaseName::File(_)) => Err(StoreError::empty(&place).into()),
            (None, DatabaseName::Server(_)) if !self.fills.load(Ordering::Relaxed) => {
                Err(OracleError::Empty(place))
            }
            (None, DatabaseName::Server(_)) => {
                write.found(self.mesh()).await?;
                Ok(RosterRank { endorsement: 0, version: 0 })
            }
        }
    }

    /// Signs, commits and publishes, in this order, so that nobody sees a version that could be assigned to another
    /// roster after a crash.
    pub(crate) async fn publish(
        &self,
        mut write: Write<'_>,
    ) -> Result<Arc<SignedRoster>, OracleError> {
        let newest = sign_next(&mut write, &self.keys, &self.config).await?;
        write.commit().await?;
        self.set_due(false);
        let newest = Arc::new(newest);
        self.announce(&newest);
        self.keep_copy(&newest).await;
        Ok(newest)
    }

    /// Gives the roster to all waiting requests if it is newer than the announced one.
    pub(crate) fn announce(&self, newest: &Arc<SignedRoster>) {
        let changed = self.newest.send_if_modified(|current| {
            let newer = newest.roster.rank() > current.roster.rank();
            if newer {
                *current = newest.clone();
            }
            newer
        });
        if changed {
            self.announce_bytes();
            self.sightings.retain(&newest.roster);
            self.emit(&Event::Published {
                version: newest.roster.version,
                members: newest.roster.members.len(),
                expiry: newest.roster.expiry,
            });
        }
    }

    /// Announces the newest bytes, which may belong to an even newer roster of another task.
    fn announce_bytes(&self) {
        self.bytes.send_modify(|bytes| *bytes = self.newest().bytes.clone());
    }

    /// See [`crate::Oracle::set_rules`].
    pub(crate) async fn set_rules(&self, rules: Vec<Rule>) -> Result<(), OracleError> {
        if rules.len() > Roster::MAX_RULES {
            let most = Roster::MAX_RULES;
            return Err(Refusal::Full(format!("a roster has at most {most} rules")).into());
        }
        let mut write = self.begin().await?;
        if write.mesh().await?.is_some_and(|mesh| mesh.rules == rules) {
            return Ok(());
        }
        write.set_rules(&rules).await?;
        write.note("rules", "mesh", "local", self.now()).await?;
        self.publish(write).await.map(drop)
    }

    /// See [`crate::Oracle::set_addresses`].
    pub(crate) async fn set_addresses(
        &self,
        caller: &Caller,
        addresses: Vec<Destination>,
    ) -> Result<AddressesReply, OracleError> {
        let actor = self.authorise(caller, Access::Member)?;
        let key = caller.key().unwrap_or(self.node);
        let mut write = self.begin().await?;
        let members = write.members().await?;
        let own = members.into_iter().find(|m| m.holds(&key)).ok_or(Refusal::NotListed(key))?;
        if !own.is(Role::Relay) && !own.is(Role::Oracle) {
            let why = "only members with the role relay or oracle have addresses: revoke this one, and \
                       let it join with a token from `thalweg mesh token --role relay`";
            return Err(Refusal::Bad(why.to_owned()).into());
        }
        let name = own.name.clone();
        if own.dialled_addresses().eq(&addresses) {
            let version = self.newest().roster.version;
            return Ok(AddressesReply { name, addresses, version });
        }
        admissible(&Member { addresses: addresses.clone(), ..own.clone() }, Some(caller))?;
        let moved = with_addresses(&own, addresses.clone());
        write.set_addresses(&moved).await?;
        write.note("addresses", name.as_str(), actor.label(), self.now()).await?;
        let version = self.publish(write).await?.roster.version;
        Ok(AddressesReply { name, addresses, version })
    }

    /// Sets the relays through which these members are reached, and publishes a roster if any of them changes. Members
    /// that were revoked meanwhile are left out.
    pub(crate) async fn set_reach(
        &self,
        statements: &BTreeMap<Name, Vec<Name>>,
    ) -> Result<(), OracleError> {
        let mut write = self.begin().await?;
        let members = write.members().await?;
        let stated = |member: &Member| Some(with_relays(member, statements.get(&member.name)?));
        let moved = members.iter().filter_map(|m| stated(m).filter(|moved| moved != m));
        let moved: Vec<Member> = moved.collect();
        if moved.is_empty() {
            return Ok(());
        }
        for member in &moved {
            write.set_addresses(member).await?;
        }
        self.publish(write).await.map(drop)
    }

    /// Takes over a newer roster if another process has published one.
    pub(crate) async fn refresh(&self) -> Result<(), OracleError> {
        let version = self.store.version().await?;
        // A roster of a new signing key may have a lower version than one that a thief of the old key has given.
        if version.is_none_or(|version| version == self.newest().roster.version) {
            return self.check_key();
        }
        let mesh = self.store.mesh().await?;
        let signed = mesh.map(|mesh| mesh.signed).unwrap_or_default();
        let newest = Arc::new(self.keys.read(signed)?);
        self.announce(&newest);
        self.check_key()
    }

    /// Checks that no other signing key has replaced that of this oracle.
    pub(crate) fn check_key(&self) -> Result<(), OracleError> {
        self.keys.check_current(&self.newest().roster)
    }

    /// Writes the copy unless a newer one exists. The database already has the roster, so a failure is only reported as
    /// an event.
    pub(crate) async fn keep_copy(&self, newest: &Arc<SignedRoster>) {
        let mut copied = self.copied.lock().await;
        if *copied >= Some(newest.roster.rank()) {
            return;
        }
        let (path, kept) = (self.path(file::COPY), newest.clone());
        let done =
            tokio::task::spawn_blocking(move || roster_copy::write(&path, &kept.bytes)).await;
        match done.map_err(std::io::Error::other).and_then(|done| done) {
            Ok(()) => *copied = Some(newest.roster.rank()),
            Err(error) => self.emit(&Event::Trouble(format!(
                "cannot save the copy of the roster: \
                                                             {error}"
            ))),
        }
    }

    /// Publishes a new version and prunes old tokens and events.
    pub(crate) async fn renew(&self) -> Result<(), OracleError> {
        let mut write = self.begin().await?;
        let now = self.now();
        write.prune(earlier(now, TOKENS_KEPT), earlier(now, EVENTS_KEPT)).await?;
        self.publish(write).await.map(drop)
    }

    /// Whether a new roster is due: a third of the validity has passed, or our clock was ahead and was set back, so
    /// that members with correct clocks reject the roster.
    pub(crate) fn is_due(&self) -> bool {
        let newest = self.newest();
        let (now, validity) = (self.now(), self.config.validity);
        let made = earlier(newest.roster.expiry, validity);
        let unfinished = self.due.load(Ordering::Relaxed);
        unfinished || now >= later(made, validity / 3) || now < newest.roster.not_before
    }

    /// Records the version of a member whose roster is signed by the present key. Reports once if it is above ours.
    pub(crate) fn record_rank(
        &self,
        caller: &Caller,
        RosterRank { endorsement, version }: RosterRank,
    ) {
        let newest = self.newest();
        if endorsement != newest.roster.rank().endorsement {
            return;
        }
        let member = caller.key().and_then(|key| {
            // A request by a command of the host must not make its daemon look alive.
            newest.roster.by_key(&key).filter(|m| m.principal() == key)
        });
        let Some(member) = member else { return };
        let last = self.sightings.note(member, version);
        let ours = newest.roster.version;
        if version > ours && last != Some(version) {
            self.emit(&Event::Ahead { name: member.name.clone(), has: version, ours });
        }
    }

    /// See [`crate::Oracle::status`].
    pub(crate) fn status(&self) -> StatusReply {
        let SignedRoster { roster, .. } = &*self.newest();
        StatusReply {
            mesh: self.mesh(),
            version: roster.version,
            expiry: roster.expiry,
            time: self.now(),
            members: roster.members.iter().map(|m| self.member_status(m, roster.version)).collect(),
        }
    }

    /// The oracle's own node receives rosters without requesting them.
    fn member_status(&self, member: &Member, version: u64) -> MemberStatus {
        match member.holds(&self.node) {
            true => MemberStatus {
                name: member.name.clone(),
                seen: Some(Duration::ZERO),
                version: Some(version),
            },
            false => self.sightings.of(member),
        }
    }
}

/// The next version: above the last, and at least the date in seconds, so that a database restored from a backup does
/// not fall behind the versions that members have.
fn next_version(last: u64, now: WallTime) -> u64 {
    last.saturating_add(1).max(now.as_unix_nanos() / 1_000_000_000)
}

pub(crate) fn later(date: WallTime, by: Duration) -> WallTime {
    let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    WallTime::from_unix_nanos(date.as_unix_nanos().saturating_add(by))
}

pub(crate) fn earlier(date: WallTime, by: Duration) -> WallTime {
    let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
    WallTime::from_unix_nanos(date.as_unix_nanos().saturating_sub(by))
}

/// Signs the roster of the transaction's members and rules, which follows the stored one, and stores it in the database.
pub(crate) async fn sign_next(
    write: &mut Write<'_>,
    keys: &MeshKeys,
    config: &Config,
) -> Result<SignedRoster, OracleError> {
    let now = config.clock.now();
    let mesh = write.mesh().await?.ok_or_else(|| StoreError::empty(write.place()))?;
    // A damaged roster is replaced.
    let before = keys.read(mesh.signed).ok();
    // Another oracle may have a newer key.
    before.as_ref().map_or(Ok(()), |before| keys.check_current(&before.roster))?;
    let is_new_key =
        before.as_ref().is_some_and(|one| one.roster.rank().endorsement < keys.number());
    if is_new_key {
        // Whoever had the old key may have made tokens, and may have given a roster the highest version.
        write.void_tokens().await?;
    }
    let last = if is_new_key { 0 } else { mesh.version };
    let roster = Roster {
        version: next_version(last, now),
        not_before: earlier(now, BEFORE),
        expiry: later(now, config.validity),
        members: write.members().await?,
        rules: mesh.rules,
        endorsement: None,
        // Nodes of the first format of rosters can read those of meshes without a root key.
        predecessor: before
            .filter(|_| keys.number() > 0)
            .map(|one| Predecessor::new(one.roster.version, &one.bytes)),
    };
    let signed = keys.sign(roster)?;
    write.keep(signed.roster.version, &signed.bytes).await?;
    Ok(signed)
}

/// Replaces the database's members with the roster's. A member missing from the roster was revoked after the backup.
/// Open tokens become void, because they may have been used since.
async fn restore(
    write: &mut Write<'_>,
    newest: &SignedRoster,
    now: WallTime,
) -> Result<(), OracleError> {
    for member in write.members().await? {
        if newest.roster.by_name(&member.name) != Some(&member) {
            write.remove(&member.name, now).await?;
        }
    }
    let there = write.members().await?;
    for member in newest.roster.members.iter().filter(|m| !there.contains(m)) {
        write.add(member, now).await?;
    }
    write.void_tokens().await?;
    write.set_rules(&newest.roster.rules).await?;
    write.keep(newest.roster.version, &newest.bytes).await?;
    write.note("restored", "mesh", "local", now).await?;
    Ok(())
}

/// Returns a function that wraps an I/O error with the file's path.
pub(crate) fn file_error(file: &Path) -> impl Fn(std::io::Error) -> OracleError {
    move |source| OracleError::File { file: file.into(), source }
}

fn newer(a: Option<Arc<SignedRoster>>, b: Option<Arc<SignedRoster>>) -> Option<Arc<SignedRoster>> {
    a.into_iter().chain(b).max_by_key(|newest| newest.roster.rank())
}

/// The signed roster in this file; `None` if the file is missing or not usable.
fn read_copy(
    path: &Path,
    keys: &MeshKeys,
    config: &Config,
) -> Result<Option<Arc<SignedRoster>>, OracleError> {
    let Some(bytes) = roster_copy::read(path).map_err(file_error(path))? else { return Ok(None) };
    match keys.read(bytes) {
        Ok(newest) => Ok(Some(Arc::new(newest))),
        Err(error) => {
            (config.events)(&Event::CopyIgnored(error.to_string()));
            Ok(None)
        }
    }
}

/// Opens the database that the settings name.
async fn database(
    dir: &Path,
    keys: &MeshKeys,
    copy: bool,
    config: &Config,
) -> Result<Store, OracleError> {
    match &config.database {
        Database::File => file_database(dir, keys, copy, config).await,
        Database::Server(_) => Ok(Store::at(&config.database, Path::new(""), config.patience)?),
    }
}

/// Opens the database file. Creates it if it is missing and the copy can fill it.
///
/// Refused if the state is known to be in another database: lost settings must not create a second state from an old
/// copy.
async fn file_database(
    dir: &Path,
    keys: &MeshKeys,
    copy: bool,
    config: &Config,
) -> Result<Store, OracleError> {
    let (path, marker) = (dir.join(file::DATABASE), dir.join(file::ELSEWHERE));
    if let Some(place) = DatabaseMarker::read(dir, &config.database)?.known {
        return Err(OracleError::Elsewhere { dir: dir.into(), place, marker });
    }
    if path.exists() {
        let store = Store::at(&Database::File, &path, config.patience)?;
        store.ready().await?;
        return Ok(store);
    }
    if !copy {
        return Err(OracleError::Missing(dir.into()));
    }
    let store = Store::create(&path, config.patience).await?;
    let mut write = store.write().await?;
    write.found(keys.root()).await?;
    write.commit().await?;
    Ok(store)
}

/// Records in a file which server's database holds the state.
pub(crate) struct DatabaseMarker {
    file: PathBuf,
    known: Option<String>,
    here: Option<String>,
    /// Whether an empty database may be filled from the signed copy. Only if an oracle was here before and its state is
    /// not known to be in another database: a misspelt URL must not create a second state.
    pub fills: bool,
}

impl DatabaseMarker {
    /// Compares the recorded database with the configured one.
    pub fn read(dir: &Path, database: &Database) -> Result<Self, OracleError> {
        let file = dir.join(file::ELSEWHERE);
        let known = roster_copy::read(&file).map_err(file_error(&file))?;
        let known = known.map(|known| String::from_utf8_lossy(&known).trim().to_owned());
        let here = match database {
            Database::File => None,
            Database::Server(server) => Some(server.place().to_string()),
        };
        let same = known.is_none() || known == here;
        let fills = here.is_some() && same && dir.join(file::COPY).exists();
        Ok(Self { file, known, here, fills })
    }

    /// Records that the state is in this server's database.
    pub fn write(&self) -> Result<(), OracleError> {
        match &self.here {
            Some(here) if self.known.as_ref() != Some(here) => {
                let text = format!("{here}\n");
                roster_copy::write(&self.file, text.as_bytes()).map_err(file_error(&self.file))
            }
            _ => Ok(()),
        }
    }
}

/// The roster to start with. An unreachable server is tolerated if there is a copy, and an empty database is accepted
/// if it may be filled. Both are handled at the first change.
async fn initial_roster(
    store: &Store,
    keys: &MeshKeys,
    copy: Option<Arc<SignedRoster>>,
    fills: bool,
    config: &Config,
) -> Result<Arc<SignedRoster>, OracleError> {
    match (mesh_row(store, keys).await, copy) {
        (Ok(Some(mesh)), copy) => newest_of(store, &mesh, keys, copy),
        (Ok(None), Some(copy)) if fills => Ok(copy),
        (Ok(None), _) => Err(OracleError::Empty(store.place().clone())),
        (Err(OracleError::Store(error)), Some(copy)) if error.may_pass() => {
            (config.events)(&Event::Trouble(error.to_string()));
            Ok(copy)
        }
        (Err(error), _) => Err(error),
    }
}

/// The database's row about the mesh; `None` in an empty database of a server. A file without the row was not created
/// by an oracle.
async fn mesh_row(store: &Store, keys: &MeshKeys) -> Result<Option<MeshRow>, OracleError> {
    let place = store.place();
    match (store.mesh().await?, place) {
        (Some(mesh), _) if mesh.mesh != keys.root() => {
            let found = format!("{:?}", mesh.mesh);
            Err(OracleError::OtherMesh { place: place.clone(), found })
        }
        (None, DatabaseName::File(_)) => Err(StoreError::empty(place).into()),
        (found, _) => Ok(found),
    }
}

/// The rank of the roster in the database; of a damaged one only the version is known.
fn stored_rank(keys: &MeshKeys, mesh: MeshRow) -> RosterRank {
    let version = mesh.version;
    let unknown = RosterRank { endorsement: 0, version };
    keys.read(mesh.signed).map_or(unknown, |stored| stored.roster.rank())
}

/// The newer of the database's roster and the copy. A copy that a replaced key has signed may be a thief's.
fn newest_of(
    store: &Store,
    mesh: &MeshRow,
    keys: &MeshKeys,
    copy: Option<Arc<SignedRoster>>,
) -> Result<Arc<SignedRoster>, OracleError> {
    let damaged = |error: OracleError| StoreError::damaged(store.place(), error.to_string());
    let kept = keys.read(mesh.signed.clone()).map_err(damaged).map(Arc::new);
    let copy = copy.filter(|copy| copy.roster.rank().endorsement >= keys.number());
    match (kept, copy) {
        (Ok(kept), Some(copy)) if copy.roster.rank() > kept.roster.rank() => Ok(copy),
        (Err(_), Some(copy)) if copy.roster.version > mesh.version => Ok(copy),
        (kept, _) => Ok(kept?),
    }
}
