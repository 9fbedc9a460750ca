//! Where it is remembered what paths were like.

use super::args::PathArgs;
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use thalweg_node::history::History;

/// The name of the file in the state directory, or in the cache.
const NAME: &str = "history.json";

/// The file of what is remembered; `None` if nothing shall be, or there is no place for it.
pub fn file(args: &PathArgs) -> Option<PathBuf> {
    match &args.history {
        Some(file) if file.as_os_str() == "none" => None,
        Some(file) => Some(file.clone()),
        None => place(args),
    }
}

/// Keeps what was learnt; the directory is made if need be.
///
/// # Errors
/// The system's.
pub fn save(history: &mut History, file: &Path) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    history.save()
}

/// In the state directory if this host has one, else in the user's cache.
fn place(args: &PathArgs) -> Option<PathBuf> {
    let state = args.place.directory().ok().filter(|directory| directory.is_dir());
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = || absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(state.or_else(|| Some(cache()?.join("thalweg")))?.join(NAME))
}
