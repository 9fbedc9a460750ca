//! Starting, also after damage.

use crate::{
    Config, Event, Oracle, OracleError, keep,
    limits::{self, JoinGate, PerKey},
    oracle::{Inner, Newest, file, file_error},
    publish::read_signed,
    status::Sightings,
    store::{MeshRow, Store, StoreError, Write},
};
use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};
use thalweg_net::PrivateKey;
use thalweg_units::{NodeId, WallTime};
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
    /// [`OracleError`]: no oracle there, a damaged database, keys that do not fit.
    pub async fn open(dir: &Path, node: NodeId, config: Config) -> Result<Self, OracleError> {
        let key_file = dir.join(file::KEY);
        if !key_file.exists() {
            return Err(OracleError::Missing(dir.into()));
        }
        let key = PrivateKey::load(&key_file)?;
        let copy = copied(dir, &key, &config)?;
        let store = database(dir, &key, copy.is_some(), &config).await?;
        let mesh = about(&store, &key).await?;
        let kept = newest_of(&store, &mesh, &key, copy.clone())?;
        let oracle = Self::assemble(dir, key, node, store, config, kept);
        oracle.start(copy, mesh.version).await?;
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
            strangers: Semaphore::new(limits::STRANGERS),
            stopping: watch::Sender::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Believes the copy if it is newer than the database, then publishes.
    async fn start(&self, copy: Option<Arc<Newest>>, version: u64) -> Result<(), OracleError> {
        let copy = copy.filter(|copy| copy.roster.version > version);
        match self.start_anew(copy).await {
            // Damage shows on the first write at the latest, and is not to be served from.
            Err(OracleError::Store(StoreError::Damaged { file, what })) => {
                Err(StoreError::Damaged { file, what }.into())
            }
            Err(OracleError::Store(error)) => {
                self.tell(&Event::Trouble(error.to_string()));
                Ok(())
            }
            done => done,
        }
    }

    async fn start_anew(&self, copy: Option<Arc<Newest>>) -> Result<(), OracleError> {
        let mut write = self.inner.store.write().await?;
        if let Some(copy) = copy {
            let database = write.mesh().await?.map_or(0, |mesh| mesh.version);
            restore(&mut write, &copy, self.now()).await?;
            self.tell(&Event::Restored { database, copy: copy.roster.version });
        }
        self.publish(write).await.map(drop)
    }
}

/// The signed copy, if there is a usable one.
fn copied(
    dir: &Path,
    key: &PrivateKey,
    config: &Config,
) -> Result<Option<Arc<Newest>>, OracleError> {
    let path = dir.join(file::COPY);
    let Some(bytes) = keep::read(&path).map_err(file_error(&path))? else { return Ok(None) };
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
    let damaged = || StoreError::damaged(store.file(), "the row about the mesh is missing".into());
    let mesh = store.mesh().await?.ok_or_else(damaged)?;
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

/// Makes the database's members those of the copy. Who is not in the copy was revoked
/// since; open tokens may have been used since.
async fn restore(write: &mut Write<'_>, copy: &Newest, now: WallTime) -> Result<(), OracleError> {
    for member in write.members().await? {
        let kept = copy.roster.by_name(&member.name) == Some(&member);
        if !kept {
            write.remove(&member.name, now).await?;
        }
    }
    let there = write.members().await?;
    for member in copy.roster.members.iter().filter(|m| !there.contains(m)) {
        write.add(member, now).await?;
    }
    write.void_tokens().await?;
    write.set_rules(&copy.roster.rules).await?;
    write.keep(copy.roster.version, &copy.bytes).await?;
    write.note("restored", "mesh", "local", now).await?;
    Ok(())
}
