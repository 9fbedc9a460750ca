//! Where it is remembered what paths were like.

use super::args::PathArgs;
use std::path::{Path, PathBuf};
use thalweg_node::history::History;

/// The name of the file in the state directory, or in the cache.
const NAME: &str = "history.json";

/// What is remembered; `None` if nothing shall be, or there is no place for it.
pub fn open(args: &PathArgs) -> Option<History> {
    let file = match &args.history {
        Some(file) if file.as_os_str() == "none" => return None,
        Some(file) => file.clone(),
        None => place(args)?,
    };
    Some(History::open(&file))
}

/// In the state directory if this host has one, else in the user's cache.
fn place(args: &PathArgs) -> Option<PathBuf> {
    let state = args.place.directory().ok().filter(|directory| directory.is_dir());
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = || absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let directory = match state {
        Some(directory) => directory,
        None => made(cache()?.join("thalweg"))?,
    };
    Some(directory.join(NAME))
}

fn made(directory: PathBuf) -> Option<PathBuf> {
    let there = |d: &Path| std::fs::create_dir_all(d).is_ok();
    there(&directory).then_some(directory)
}
