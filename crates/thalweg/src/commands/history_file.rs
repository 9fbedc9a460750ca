//! The location of the history of paths.

use super::host::{StateDir, quoted};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};
use thalweg_paths::history::History;
use thalweg_units::WallTime;

/// The file's name in the state directory or the cache.
const NAME: &str = "history.json";

/// The history file: `given`, or else that of `state_dir`. `None` if it is disabled (`none`), or no directory is known.
pub fn file(given: Option<&Path>, state_dir: &StateDir) -> Option<PathBuf> {
    match given {
        Some(file) if file.as_os_str() == "none" => None,
        Some(file) => Some(file.to_owned()),
        None => default_file(state_dir),
    }
}

/// The argument with which `thalweg history` uses the same file: ` --history FILE` or ` --state DIR`, quoted for a
/// shell, or nothing.
pub fn argument(given: Option<&Path>, state_dir: &StateDir) -> String {
    match given {
        Some(file) => format!(" --history {}", quoted(&file.display().to_string())),
        None => state_dir.argument(),
    }
}

/// Saves the history; creates its directory if needed.
///
/// # Errors
/// As the system reports them.
pub fn save(history: &mut History, file: &Path) -> io::Result<()> {
    create_parent(file)?;
    history.save()
}

/// Creates the file's directory.
///
/// # Errors
/// As the system reports them.
pub fn create_parent(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), fs::create_dir_all)
}

/// The current time by the system's clock.
pub fn now() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// In the state directory if this host has one, else in the user's cache.
fn default_file(state_dir: &StateDir) -> Option<PathBuf> {
    let state = state_dir.directory().ok().filter(|directory| directory.is_dir());
    Some(state.or_else(cache)?.join(NAME))
}

/// Thalweg's directory in the user's cache.
fn cache() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("thalweg"))
}

/// Copies a file of this name from the cache, where it was stored before the host had a state directory, unless this
/// file exists.
///
/// # Errors
/// As the system reports them.
pub fn adopt_cached(file: &Path) -> io::Result<()> {
    let before = cache().zip(file.file_name()).map(|(cache, name)| cache.join(name));
    let Some(before) = before.filter(|before| before.exists()) else { return Ok(()) };
    if file.exists() {
        return Ok(());
    }
    create_parent(file)?;
    let whole = file.with_extension("taken");
    fs::copy(before, &whole)?;
    fs::rename(whole, file)
}
