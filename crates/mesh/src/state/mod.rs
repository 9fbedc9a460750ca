//! The state directory: a host's keys, its mesh, and the roster.
//!
//! ```text
//! node.key client.key   private keys, mode 0600
//! mesh.json             the mesh's root key, the own name, the oracles
//! roster                the newest signed roster
//! measured              the day, and its bytes for measurements so far
//! lock                  held by the daemon, `init`, `join` and `rekey`; holds their process id
//! node.sock             the daemon's API
//! api.token             the token of programs that use the API on loopback, mode 0600
//! probe.sock            probe trains for other programs (`thalweg_probe::trains`)
//! oracle/               the oracle's own, where there is one
//! spool/                others' data on its way between them (`thalweg_files::spool`)
//! ```
//!
//! `mesh.json` is written last: a host whose joining was interrupted is no member yet, and joins again with the keys
//! that it has.

mod error;
mod lock;
mod mesh_file;

pub use error::StateError;
pub use lock::StateLock;
pub use mesh_file::{MeshFile, Oracle};

use super::Membership;
use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};
use thalweg_base::durable;
use thalweg_net::{KeyError, PrivateKey};

/// A state directory that only its owner can enter; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    dir: PathBuf,
}

impl State {
    /// Creates the directory, and those above it, unless it exists; then as [`State::open`].
    ///
    /// # Errors
    /// [`StateError`].
    pub fn create(dir: &Path) -> Result<Self, StateError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(StateError::io("create", dir))?;
        Self::open(dir)
    }

    /// Opens an existing directory.
    ///
    /// # Errors
    /// [`StateError::Absent`], [`StateError::Owner`] if it is another user's,
    /// [`StateError::Mode`] if others may enter it.
    pub fn open(dir: &Path) -> Result<Self, StateError> {
        let found = match fs::metadata(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(StateError::Absent(dir.to_owned()));
            }
            found => found.map_err(StateError::io("open", dir))?,
        };
        if !found.is_dir() {
            return Err(StateError::io("open", dir)(io::ErrorKind::NotADirectory.into()));
        }
        check_owner(dir, found.uid(), rustix::process::geteuid().as_raw())?;
        let mode = found.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(StateError::Mode { path: dir.to_owned(), mode, right: 0o700 });
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// The directory that contains the state.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether this host is in a mesh.
    pub fn has_mesh(&self) -> bool {
        self.mesh_file().exists()
    }

    /// The file with the bytes that measurements have cost today.
    pub fn measured_file(&self) -> PathBuf {
        self.dir.join("measured")
    }

    /// What this host knows of its mesh.
    ///
    /// # Errors
    /// [`StateError::NoMesh`] if it is in none; errors of the file.
    pub fn mesh(&self) -> Result<MeshFile, StateError> {
        MeshFile::read(&self.mesh_file())?.ok_or_else(|| StateError::NoMesh(self.dir.clone()))
    }

    /// Makes this host a member of `mesh`, or changes what it knows of it; durable.
    ///
    /// # Errors
    /// The system's.
    pub fn set_mesh(&self, mesh: &MeshFile) -> Result<(), StateError> {
        let file = self.mesh_file();
        durable::replace(&file, mesh.to_json().as_bytes()).map_err(StateError::io("write", &file))
    }

    /// The stored roster, whatever its age; see [`Membership::load`].
    ///
    /// # Errors
    /// [`StateError::NoMesh`]; errors of the roster.
    pub fn membership(&self) -> Result<Membership, StateError> {
        Ok(Membership::load(self.mesh()?.mesh, self.roster_file())?)
    }

    /// The daemon's key.
    ///
    /// # Errors
    /// [`KeyError`], also if there is none.
    pub fn node_key(&self) -> Result<PrivateKey, StateError> {
        Ok(PrivateKey::load(&self.dir.join("node.key"))?)
    }

    /// The command line's key.
    ///
    /// # Errors
    /// [`KeyError`], also if there is none.
    pub fn client_key(&self) -> Result<PrivateKey, StateError> {
        Ok(PrivateKey::load(&self.dir.join("client.key"))?)
    }

    /// The daemon's key; creates it, durably, if there is none.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn make_node_key(&self) -> Result<PrivateKey, StateError> {
        make_key(&self.dir.join("node.key"))
    }

    /// The command line's key; creates it, durably, if there is none.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn make_client_key(&self) -> Result<PrivateKey, StateError> {
        make_key(&self.dir.join("client.key"))
    }

    /// Locks the directory for one daemon, `init` or `join`, as long as the lock is held.
    ///
    /// # Errors
    /// [`StateError::Busy`] with the other process's id.
    pub fn lock(&self) -> Result<StateLock, StateError> {
        StateLock::take(&self.dir.join("lock"))
    }

    /// The file with the roster.
    pub fn roster_file(&self) -> PathBuf {
        self.dir.join("roster")
    }

    /// The socket of the daemon's API.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("node.sock")
    }

    /// The token of programs that use the daemon's API on loopback.
    pub fn api_token_file(&self) -> PathBuf {
        self.dir.join("api.token")
    }

    /// The socket where programs give the daemon streams, and take them.
    pub fn stream_socket(&self) -> PathBuf {
        self.dir.join("stream.sock")
    }

    /// The socket where other programs give the daemon probe trains.
    pub fn probe_socket(&self) -> PathBuf {
        self.dir.join("probe.sock")
    }

    /// The oracle's own directory; need not exist.
    pub fn oracle_dir(&self) -> PathBuf {
        self.dir.join("oracle")
    }

    /// The mesh's root key on the founder's host, until its owner moves it to a safe place.
    pub fn root_key_file(&self) -> PathBuf {
        self.oracle_dir().join("root.key")
    }

    fn mesh_file(&self) -> PathBuf {
        self.dir.join("mesh.json")
    }
}

/// The owner of the directory can read its keys and decides which members this host trusts. Root may enter any
/// directory, but would leave files there that the directory's owner cannot use.
fn check_owner(dir: &Path, owner: u32, me: u32) -> Result<(), StateError> {
    if owner == me { Ok(()) } else { Err(StateError::Owner { dir: dir.to_owned(), owner, me }) }
}

fn make_key(file: &Path) -> Result<PrivateKey, StateError> {
    match PrivateKey::load(file) {
        Err(KeyError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
        loaded => return Ok(loaded?),
    }
    let key = PrivateKey::generate().map_err(StateError::io("generate a key for", file))?;
    key.save_new(file)?;
    durable::sync_directory(file).map_err(StateError::io("keep", file))?;
    Ok(key)
}
