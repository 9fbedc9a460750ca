//! Finds running labs and the lab's program.

use crate::client::LabError;
use rustix::fs::FlockOperation;
use std::{
    env, fs, io,
    os::{
        fd::OwnedFd,
        unix::{fs::DirBuilderExt, net::UnixStream},
    },
    path::{Path, PathBuf},
};

/// The environment variable that tells programs inside a lab the lab's socket.
pub const LAB_VARIABLE: &str = "THALWEG_LAB";
/// The environment variable with the path of the lab's program, if it is not beside the caller's.
pub const PROGRAM_VARIABLE: &str = "THALWEG_LAB_PROGRAM";

/// File extension of the socket of a shared lab, which `thalweg-bench lab up` started.
const SHARED: &str = "sock";
/// File extension of the socket of a private lab, which one program started. It is used only if named explicitly.
const PRIVATE: &str = "private";

/// The socket path of the shared lab of this name; without a name, the socket path of this process's private lab.
///
/// # Errors
/// If the directory of sockets cannot be used.
pub fn socket_path(name: Option<&str>) -> Result<PathBuf, LabError> {
    let own = format!("lab-{}.{PRIVATE}", std::process::id());
    Ok(runtime_dir()?.join(name.map_or(own, |name| format!("{name}.{SHARED}"))))
}

/// Whether the lab is private to the program that started it.
pub fn is_private(socket: &Path) -> bool {
    socket.extension().is_some_and(|e| e == PRIVATE)
}

/// The directory of this user's lab sockets. It is created with mode 0700 if absent.
///
/// # Errors
/// If it cannot be created, or belongs to another user or is accessible to others.
pub fn runtime_dir() -> Result<PathBuf, LabError> {
    let uid = rustix::process::getuid().as_raw();
    let dir = match env::var_os("XDG_RUNTIME_DIR") {
        Some(base) if Path::new(&base).is_dir() => PathBuf::from(base).join("thalweg-lab"),
        _ => env::temp_dir().join(format!("thalweg-lab-{uid}")),
    };
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(LabError::Directory(dir, e)),
        _ => check_owner(dir, uid),
    }
}

/// Rejects a directory that another user created: that user would control our sockets.
fn check_owner(dir: PathBuf, uid: u32) -> Result<PathBuf, LabError> {
    use std::os::unix::fs::MetadataExt;
    let fail = |e| LabError::Directory(dir.clone(), e);
    let meta = fs::symlink_metadata(&dir).map_err(fail)?;
    // In a user namespace the owner shows as root.
    if meta.is_dir() && (meta.uid() == uid || meta.uid() == 0) && meta.mode() & 0o077 == 0 {
        return Ok(dir);
    }
    let why =
        "it belongs to another user or other users can access it; remove it or set XDG_RUNTIME_DIR";
    Err(fail(io::Error::new(io::ErrorKind::PermissionDenied, why)))
}

/// Locks out every other start and end of a lab by this user, until the returned descriptor is dropped or unlocked.
///
/// Checking that a name is free and taking it must be one atomic step.
///
/// # Errors
/// If the directory of sockets cannot be locked.
pub fn lock() -> Result<OwnedFd, LabError> {
    let dir = runtime_dir()?;
    let fail = |e: io::Error| LabError::Directory(dir.clone(), e);
    let fd = OwnedFd::from(fs::File::open(&dir).map_err(fail)?);
    rustix::fs::flock(&fd, FlockOperation::LockExclusive).map_err(|e| fail(e.into()))?;
    Ok(fd)
}

/// The sockets of all running labs of this user. Removes the sockets of dead labs.
///
/// # Errors
/// If the directory cannot be read.
pub fn list_running() -> Result<Vec<PathBuf>, LabError> {
    let dir = runtime_dir()?;
    let entries = fs::read_dir(&dir).map_err(|e| LabError::Directory(dir, e))?;
    let mut sockets: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == SHARED || e == PRIVATE))
        .filter(|path| answers_or_removed(path))
        .collect();
    sockets.sort();
    Ok(sockets)
}

/// Whether a lab answers at this socket. Removes the socket if the lab is dead.
pub fn answers_or_removed(path: &Path) -> bool {
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
            let _gone = fs::remove_file(path);
            false
        }
        other => other.is_ok(),
    }
}

/// Finds a running lab: by name or socket path, else by [`LAB_VARIABLE`], else the only shared one.
///
/// # Errors
/// If there is none, or if there are several and none was named.
pub fn find(named: Option<&str>) -> Result<PathBuf, LabError> {
    let variable = env::var(LAB_VARIABLE).ok();
    if let Some(name) = named.or(variable.as_deref()) {
        return find_by_name(name);
    }
    let mut all: Vec<_> =
        list_running()?.into_iter().filter(|socket| !is_private(socket)).collect();
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(LabError::NoneRunning),
        _ => Err(LabError::Several(all.iter().map(|p| lab_name(p)).collect())),
    }
}

fn find_by_name(name: &str) -> Result<PathBuf, LabError> {
    let candidates = if name.contains('/') {
        vec![PathBuf::from(name)]
    } else {
        let dir = runtime_dir()?;
        [SHARED, PRIVATE].map(|ending| dir.join(format!("{name}.{ending}"))).into()
    };
    let running = candidates.into_iter().find(|path| answers_or_removed(path));
    running.ok_or_else(|| LabError::NotRunning(name.to_owned()))
}

/// A lab's name: the file name of its socket without the extension.
pub fn lab_name(socket: &Path) -> String {
    socket.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The lab's program: [`PROGRAM_VARIABLE`], else the one [`find_beside`] the caller's, so that a checkout never runs
/// an installed lab of another version; else the one in PATH.
///
/// # Errors
/// If it is not found.
pub fn find_program() -> Result<PathBuf, LabError> {
    if let Some(path) = env::var_os(PROGRAM_VARIABLE) {
        return Ok(path.into());
    }
    find_sibling("thalweg-lab").ok_or(LabError::NoProgram)
}

/// A program of this project from the same build: in the directory of the caller's executable or (for tests) its parent
/// directory.
pub fn find_beside(name: &str) -> Option<PathBuf> {
    let here = env::current_exe().ok()?;
    here.ancestors().skip(1).take(2).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// A program [`find_beside`] the caller's, else in PATH.
fn find_sibling(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = || env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file());
    find_beside(name).or_else(in_path)
}
