//! Starting, also after damage.

use crate::{
    Config, Event, Oracle, OracleError, keep,
    limits::{self, JoinGate, PerKey},
    oracle::{Inner, Newest, file, file_error},
    places::Places,
    publish::read_signed,
    status::Sightings,
    store::{MeshRow, Store, StoreError},
};
use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};
use thalweg_net::PrivateKey;
use thalweg_units::NodeId;
use thalweg_wire::Signer as _;
use tokio::sync::{Mutex, Semaphore, watch};

impl Oracle {
    /// Opens the oracle in `dir`, which runs in the node with TLS key `node`, and publishes anew.
    ///
    /// If the database can be read but not written (locked, full), the kept roster is
    /// served and a new one published as soon as that is possible. If it is missing, it
    /// is made anew from the signed copy.
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
        let mesh = about(&store, &key).await?;
        let kept = newest_of(&store, &mesh, &key, copy)?;
        if !kept.roster.members.iter().any(|m| m.node == Some(node)) {
            return Err(OracleError::OtherNode { dir: dir.into(), node });
        }
        let oracle = Self::assemble(dir, key, node, store, config, kept);
        oracle.start().await?;
        Ok(oracle)
    }

    fn assemble(
        dir: &Path,
        key: PrivateKey,
        node: NodeId,
        store: Store,
        config: Config,
        newest: Arc<Newest>,
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
            Err(OracleError::Store(error)) if !matches!(error, StoreError::Damaged { .. }) => {
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

/// The database; a new one if it is missing and the copy can fill it.
async fn database(
    dir: &Path,
    key: &PrivateKey,
    copy: bool,
    config: &Config,
) -> Result<Store, OracleError> {
    let path = dir.join(file::DATABASE);
    if path.exists() {
        return Ok(Store::open(&path, config.patience).await?);
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

async fn about(store: &Store, key: &PrivateKey) -> Result<MeshRow, OracleError> {
    let mesh = store.mesh().await?.ok_or_else(|| StoreError::empty(store.file()))?;
    match mesh.mesh == key.id() {
        true => Ok(mesh),
        false => {
            let (file, found) = (store.file().into(), format!("{:?}", mesh.mesh));
            Err(OracleError::OtherMesh { file, found })
        }
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
    let damaged = |error: OracleError| StoreError::damaged(store.file(), error.to_string());
    let kept = read_signed(mesh.signed.clone(), key).map_err(damaged)?;
    Ok(Arc::new(kept))
}
