//! Where it is remembered what paths were like.

use super::here::{Place, quoted};
use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};
use thalweg_paths::history::History;
use thalweg_units::WallTime;

/// The name of the file in the state directory, or in the cache.
const NAME: &str = "history.json";

/// The file of what is remembered: the one `given`, else the one of this `place`; `None` if
/// nothing shall be (`none`), or there is no place for it.
pub fn file(given: Option<&Path>, place: &Place) -> Option<PathBuf> {
    match given {
        Some(file) if file.as_os_str() == "none" => None,
        Some(file) => Some(file.to_owned()),
        None => usual(place),
    }
}

/// What `thalweg history` needs to be about the same file: ` --history FILE`, ` --state DIR`,
/// as a shell reads them, or nothing.
pub fn argument(given: Option<&Path>, place: &Place) -> String {
    match given {
        Some(file) => format!(" --history {}", quoted(&file.display().to_string())),
        None => place.argument(),
    }
}

/// Keeps what was learnt; the directory is made if need be.
///
/// # Errors
/// The system's.
pub fn save(history: &mut History, file: &Path) -> io::Result<()> {
    make_place(file)?;
    history.save()
}

/// The directory of the file.
///
/// # Errors
/// The system's.
pub fn make_place(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), fs::create_dir_all)
}

/// The date.
pub fn now() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_unix_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// In the state directory if this host has one, else in the user's cache.
fn usual(place: &Place) -> Option<PathBuf> {
    let state = place.directory().ok().filter(|directory| directory.is_dir());
    Some(state.or_else(cache)?.join(NAME))
}

/// Ours in the user's cache.
fn cache() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("thalweg"))
}

/// Where this file is not there yet, and one of its name was kept in the cache before the host had a state directory,
/// that one's content goes on here.
///
/// # Errors
/// The system's.
pub fn take_over(file: &Path) -> io::Result<()> {
    let before = cache().zip(file.file_name()).map(|(cache, name)| cache.join(name));
    let Some(before) = before.filter(|before| before.exists()) else { return Ok(()) };
    if file.exists() {
        return Ok(());
    }
    make_place(file)?;
    let whole = file.with_extension("taken");
    fs::copy(before, &whole)?;
    fs::rename(whole, file)
}
