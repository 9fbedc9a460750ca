//! Founding of a mesh.

use crate::{
    Config, Database, OracleError, Refusal, Server,
    admission::admissible,
    mesh_keys::MeshKeys,
    registry::{DatabaseMarker, SignedRoster, file, file_error, sign_next},
    roster_copy,
    store::{Store, Write},
};
use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};
use thalweg_units::NodeId;
use thalweg_wire::mesh::{Member, Role};

/// Creates a mesh in `dir` with only `founder`. Returns the founder's node key. See [`crate::Oracle::create`].
pub(crate) async fn found(
    dir: &Path,
    founder: Member,
    config: &Config,
) -> Result<NodeId, OracleError> {
    let mut founder = founder;
    founder.roles.extend([Role::Client, Role::Oracle, Role::Admin]);
    admissible(&founder, None)?;
    let node = founder.node.ok_or(Refusal::Role { role: Role::Oracle, what: "a node key" })?;
    let fresh = beside(dir);
    prepare(&fresh)?;
    let keys = MeshKeys::create(&fresh, config.clock.now())?;
    match &config.database {
        Database::File => {
            fill(&fresh, &founder, &keys, config).await?;
            move_into_place(&fresh, dir)?;
        }
        Database::Server(server) => {
            fill_server(&fresh, dir, server, &founder, &keys, config).await?;
        }
    }
    Ok(node)
}

fn beside(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    dir.with_file_name(name)
}

/// Creates an empty private directory. Files that an interrupted start left there were never in use.
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
    keys: &MeshKeys,
    config: &Config,
) -> Result<(), OracleError> {
    let store = Store::create(&fresh.join(file::DATABASE), config.patience).await?;
    let mut write = store.write().await?;
    write_first_roster(&mut write, founder, keys, config).await?;
    write.commit().await?;
    store.close().await;
    Ok(())
}

async fn fill_server(
    fresh: &Path,
    dir: &Path,
    server: &Server,
    founder: &Member,
    keys: &MeshKeys,
    config: &Config,
) -> Result<(), OracleError> {
    let store = Store::at(&config.database, Path::new(""), config.patience)?;
    if store.mesh().await?.is_some() {
        return Err(OracleError::Taken(server.place().clone()));
    }
    let mut write = store.write().await?;
    let newest = write_first_roster(&mut write, founder, keys, config).await?;
    let path = fresh.join(file::COPY);
    roster_copy::write(&path, &newest.bytes).map_err(file_error(&path))?;
    DatabaseMarker::read(fresh, &config.database)?.write()?;
    move_into_place(fresh, dir)?;
    write.commit().await?;
    store.close().await;
    Ok(())
}

/// Writes the mesh, its founder and its first roster.
async fn write_first_roster(
    write: &mut Write<'_>,
    founder: &Member,
    keys: &MeshKeys,
    config: &Config,
) -> Result<SignedRoster, OracleError> {
    let now = config.clock.now();
    write.found(keys.root()).await?;
    write.add(founder, now).await?;
    write.note("founded", founder.name.as_str(), "local", now).await?;
    sign_next(write, keys, config).await
}

/// Renames the directory to its final name. The system refuses if that is a directory with files.
fn move_into_place(fresh: &Path, dir: &Path) -> Result<(), OracleError> {
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
