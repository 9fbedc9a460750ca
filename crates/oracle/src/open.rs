//! Starting, also after damage.

use crate::{
    Config, Database, Event, Oracle, OracleError, Place,
    election::Election,
    keep,
    limits::{self, JoinGate, PerKey},
    measure::Measuring,
    oracle::{Inner, Newest, file, file_error},
    places::Places,
    publish::read_signed,
    status::Sightings,
    store::{MeshRow, Store, StoreError},
};
use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};
use thalweg_net::PrivateKey;
use thalweg_units::NodeId;
use thalweg_wire::Signer as _;
use tokio::sync::{Mutex, Semaphore, watch};

impl Oracle {
    /// Opens the oracle in `dir`, which runs in the node with TLS key `node`, and publishes anew.
    ///
    /// If the database can be read but not written (locked, full), or its server is not
    /// reached, the kept roster is served and a new one published as soon as that is
    /// possible. If it is missing or empty, it is made anew from the signed copy.
    ///
    /// # Errors
    /// [`OracleError`]: no oracle there, a damaged database, keys that do not fit: the mesh's,
    /// or the node's own, which the roster must have.
    pub async fn open(dir: &Path, node: NodeId, config: Config) -> Result<Self, OracleError> {
        let key_file = dir.join(file::KEY);
        if !key_file.exists() {
            return Err(OracleError::Missing(dir.into()));
        }
        let key = PrivateKey::load(&key_file)?;
        let cached = config.cached.as_deref();
        let copy = newer(
            copied(&dir.join(file::COPY), &key, &config)?,
            cached.map(|file| copied(file, &key, &config)).transpose()?.flatten(),
        );
        let store = database(dir, &key, copy.is_some(), &config).await?;
        let marker = Marker::read(dir, &config.database)?;
        let kept = kept(&store, &key, copy, marker.fills, &config).await?;
        marker.write()?;
        if !kept.roster.members.iter().any(|m| m.node == Some(node)) {
            return Err(OracleError::OtherNode { dir: dir.into(), node });
        }
        let measuring = Measuring::new(config.measure.clone(), config.clock.clone());
        let measuring = Arc::new(measuring.map_err(OracleError::Random)?);
        let oracle = Self::assemble(dir, (key, node), store, config, kept, measuring);
        oracle.inner.fills.store(marker.fills, Ordering::Relaxed);
        oracle.start().await?;
        Ok(oracle)
    }

    fn assemble(
        dir: &Path,
        (key, node): (PrivateKey, NodeId),
        store: Store,
        config: Config,
        newest: Arc<Newest>,
        measuring: Arc<Measuring>,
    ) -> Self {
        let inner = Inner {
            joins: JoinGate::new(&config.join_limits),
            bytes: watch::Sender::new(newest.bytes.clone()),
            newest: watch::Sender::new(newest),
            dir: dir.into(),
            key,
            node,
            store,
            config,
            copied: Mutex::new(0),
            due: AtomicBool::new(true),
            fills: AtomicBool::new(false),
            election: Election::default(),
            measuring,
            sightings: Sightings::default(),
            waiting: Semaphore::new(limits::WAITING),
            waits_each: PerKey::default(),
            members: Places::new(limits::MEMBERS),
            strangers: Places::new(limits::STRANGERS),
            turned_away: Places::new(limits::TURNED_AWAY),
            stopping: watch::Sender::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Publishes anew: the state may have been restored from an old backup.
    async fn start(&self) -> Result<(), OracleError> {
        match self.renew().await {
            // It can wait until the database can be written; damage cannot.
            Err(OracleError::Store(error)) if error.may_pass() => {
                self.tell(&Event::Trouble(error.to_string()));
                Ok(())
            }
            done => done,
        }
    }
}

fn newer(a: Option<Arc<Newest>>, b: Option<Arc<Newest>>) -> Option<Arc<Newest>> {
    a.into_iter().chain(b).max_by_key(|newest| newest.roster.version)
}

/// The signed copy in this file, if there is a usable one.
fn copied(
    path: &Path,
    key: &PrivateKey,
    config: &Config,
) -> Result<Option<Arc<Newest>>, OracleError> {
    let Some(bytes) = keep::read(path).map_err(file_error(path))? else { return Ok(None) };
    match read_signed(bytes, key) {
        Ok(newest) => Ok(Some(Arc::new(newest))),
        Err(error) => {
            (config.events)(&Event::CopyIgnored(error.to_string()));
            Ok(None)
        }
    }
}

/// The database that the settings name.
async fn database(
    dir: &Path,
    key: &PrivateKey,
    copy: bool,
    config: &Config,
) -> Result<Store, OracleError> {
    match &config.database {
        Database::File => file_database(dir, key, copy, config).await,
        Database::Server(_) => Ok(Store::at(&config.database, Path::new(""), config.patience)?),
    }
}

/// The file; a new one if it is missing and the copy can fill it.
///
/// Refused if the state is known to be elsewhere: settings that were lost must not make a
/// second truth of an old copy.
async fn file_database(
    dir: &Path,
    key: &PrivateKey,
    copy: bool,
    config: &Config,
) -> Result<Store, OracleError> {
    let (path, marker) = (dir.join(file::DATABASE), dir.join(file::ELSEWHERE));
    if let Some(place) = Marker::read(dir, &config.database)?.known {
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
    write.found(key.id()).await?;
    write.commit().await?;
    Ok(store)
}

/// What is written down of where the state is.
pub(crate) struct Marker {
    file: PathBuf,
    known: Option<String>,
    here: Option<String>,
    /// Whether an empty database is to be filled from the signed copy. Only where an
    /// oracle was before, and never if its state is known to be in another: a misspelt URL
    /// must not make a second truth.
    pub fills: bool,
}

impl Marker {
    pub fn read(dir: &Path, database: &Database) -> Result<Self, OracleError> {
        let file = dir.join(file::ELSEWHERE);
        let known = keep::read(&file).map_err(file_error(&file))?;
        let known = known.map(|known| String::from_utf8_lossy(&known).trim().to_owned());
        let here = match database {
            Database::File => None,
            Database::Server(server) => Some(server.place().to_string()),
        };
        let same = known.is_none() || known == here;
        let fills = here.is_some() && same && dir.join(file::COPY).exists();
        Ok(Self { file, known, here, fills })
    }

    /// Writes down that the state is in this server's database.
    pub fn write(&self) -> Result<(), OracleError> {
        match &self.here {
            Some(here) if self.known.as_ref() != Some(here) => {
                let text = format!("{here}\n");
                keep::write(&self.file, text.as_bytes()).map_err(file_error(&self.file))
            }
            _ => Ok(()),
        }
    }
}

/// The roster to begin with. A server that is away for a while is asked at the first change,
/// as long as there is a copy; an empty one is filled then.
async fn kept(
    store: &Store,
    key: &PrivateKey,
    copy: Option<Arc<Newest>>,
    fills: bool,
    config: &Config,
) -> Result<Arc<Newest>, OracleError> {
    match (about(store, key).await, copy) {
        (Ok(Some(mesh)), copy) => newest_of(store, &mesh, key, copy),
        (Ok(None), Some(copy)) if fills => Ok(copy),
        (Ok(None), _) => Err(OracleError::Empty(store.place().clone())),
        (Err(OracleError::Store(error)), Some(copy)) if error.may_pass() => {
            (config.events)(&Event::Trouble(error.to_string()));
            Ok(copy)
        }
        (Err(error), _) => Err(error),
    }
}

/// The row about the mesh; none in an empty database of a server. A file without it was not
/// made by us.
async fn about(store: &Store, key: &PrivateKey) -> Result<Option<MeshRow>, OracleError> {
    let place = store.place();
    match (store.mesh().await?, place) {
        (Some(mesh), _) if mesh.mesh != key.id() => {
            let found = format!("{:?}", mesh.mesh);
            Err(OracleError::OtherMesh { place: place.clone(), found })
        }
        (None, Place::File(_)) => Err(StoreError::empty(place).into()),
        (found, _) => Ok(found),
    }
}

/// The newer of the database's roster and the copy.
fn newest_of(
    store: &Store,
    mesh: &MeshRow,
    key: &PrivateKey,
    copy: Option<Arc<Newest>>,
) -> Result<Arc<Newest>, OracleError> {
    if let Some(copy) = copy.filter(|copy| copy.roster.version > mesh.version) {
        return Ok(copy);
    }
    let damaged = |error: OracleError| StoreError::damaged(store.place(), error.to_string());
    let kept = read_signed(mesh.signed.clone(), key).map_err(damaged)?;
    Ok(Arc::new(kept))
}
