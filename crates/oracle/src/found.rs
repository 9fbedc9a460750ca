//! Founding a mesh.

use crate::{
    Config, Database, Oracle, OracleError, Refusal, Server,
    join::admissible,
    keep,
    open::Marker,
    oracle::{Newest, file, file_error},
    publish::sign_next,
    store::{Store, Write},
};
use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};
use thalweg_net::PrivateKey;
use thalweg_wire::{
    Signer as _,
    mesh::{Member, Role},
};

impl Oracle {
    /// Founds a mesh: its key, its database, its first roster with `founder` alone.
    ///
    /// `dir` must not exist or be empty. All is made beside it (`DIR.new`) and put there
    /// in one step, so that an interrupted start leaves no half an oracle. A server's
    /// database must be empty; it is filled last, and if that fails, from the copy in
    /// `dir` at the next start. The founder
    /// gets the roles client, oracle and admin beside its own, and needs a node key and
    /// an address.
    ///
    /// # Errors
    /// [`OracleError`]; then there is no oracle in `dir`.
    pub async fn create(dir: &Path, founder: Member, config: Config) -> Result<Self, OracleError> {
        let mut founder = founder;
        founder.roles.extend([Role::Client, Role::Oracle, Role::Admin]);
        admissible(&founder, None)?;
        let node = founder.node.ok_or(Refusal::Role { role: Role::Oracle, what: "a node key" })?;
        let fresh = beside(dir);
        prepare(&fresh)?;
        let key = PrivateKey::generate().map_err(OracleError::Random)?;
        key.save_new(&fresh.join(file::KEY))?;
        match &config.database {
            Database::File => {
                fill(&fresh, &founder, &key, &config).await?;
                put(&fresh, dir)?;
            }
            Database::Server(server) => {
                fill_server(&fresh, dir, server, &founder, &key, &config).await?;
            }
        }
        Self::open(dir, node, config).await
    }
}

fn beside(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    dir.with_file_name(name)
}

/// An empty directory of our own; what an interrupted start left there was never in use.
fn prepare(fresh: &Path) -> Result<(), OracleError> {
    for name in fs::read_dir(fresh).into_iter().flatten().flatten() {
        fs::remove_file(name.path()).map_err(file_error(fresh))?;
    }
    let made = DirBuilder::new().mode(0o700).recursive(true).create(fresh);
    made.map_err(file_error(fresh))
}

async fn fill(
    fresh: &Path,
    founder: &Member,
    key: &PrivateKey,
    config: &Config,
) -> Result<(), OracleError> {
    let store = Store::create(&fresh.join(file::DATABASE), config.patience).await?;
    let mut write = store.write().await?;
    first(&mut write, founder, key, config).await?;
    write.commit().await?;
    store.close().await;
    Ok(())
}

async fn fill_server(
    fresh: &Path,
    dir: &Path,
    server: &Server,
    founder: &Member,
    key: &PrivateKey,
    config: &Config,
) -> Result<(), OracleError> {
    let store = Store::at(&config.database, Path::new(""), config.patience)?;
    if store.mesh().await?.is_some() {
        return Err(OracleError::Taken(server.place().clone()));
    }
    let mut write = store.write().await?;
    let newest = first(&mut write, founder, key, config).await?;
    let copy = fresh.join(file::COPY);
    keep::write(&copy, &newest.bytes).map_err(file_error(&copy))?;
    Marker::read(fresh, &config.database)?.write()?;
    put(fresh, dir)?;
    write.commit().await?;
    store.close().await;
    Ok(())
}

/// The mesh, its founder, its first roster.
async fn first(
    write: &mut Write<'_>,
    founder: &Member,
    key: &PrivateKey,
    config: &Config,
) -> Result<Newest, OracleError> {
    let now = config.clock.now();
    write.found(key.id()).await?;
    write.add(founder, now).await?;
    write.note("founded", founder.name.as_str(), "local", now).await?;
    sign_next(write, key, config).await
}

/// Gives the directory its name; the system refuses if there is one with files in it.
fn put(fresh: &Path, dir: &Path) -> Result<(), OracleError> {
    let parent = fresh.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let sync = |dir: &Path| fs::File::open(dir).and_then(|d| d.sync_all()).map_err(file_error(dir));
    sync(fresh)?;
    fs::rename(fresh, dir).map_err(|source| match source.kind() {
        std::io::ErrorKind::DirectoryNotEmpty | std::io::ErrorKind::AlreadyExists => {
            OracleError::Exists(dir.into())
        }
        _ => OracleError::File { file: dir.into(), source },
    })?;
    sync(parent)
}
