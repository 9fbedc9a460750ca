//! Founding a mesh.

use crate::{
    Config, Oracle, OracleError, Refusal,
    join::admissible,
    oracle::{file, file_error},
    publish::sign_next,
    store::Store,
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
    /// in one step, so that an interrupted start leaves no half an oracle. The founder
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
        fill(&fresh, &founder, &config).await?;
        put(&fresh, dir)?;
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

async fn fill(fresh: &Path, founder: &Member, config: &Config) -> Result<(), OracleError> {
    let key = PrivateKey::generate().map_err(OracleError::Random)?;
    key.save_new(&fresh.join(file::KEY))?;
    let store = Store::create(&fresh.join(file::DATABASE), config.patience).await?;
    let now = config.clock.now();
    let mut write = store.write().await?;
    write.found(key.id()).await?;
    write.add(founder, now).await?;
    write.note("founded", founder.name.as_str(), "local", now).await?;
    sign_next(&mut write, &key, config).await?;
    write.commit().await?;
    store.close().await;
    Ok(())
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
