//! A published file says where it is from, so that the same command need not fetch it again.
//!
//! The extended attribute [`NAME`] holds JSON: the URL, the validator and the length that the
//! server gave, and the file's own modification time. It is a hint written as well as
//! the filesystem can. It is believed only while length and modification time are
//! still those, and only after the server has named the same validator again.

use super::{PartError, PartKey, Validator, digest};
use rustix::{
    fs::{XattrFlags, fgetxattr, fsetxattr},
    io::Errno,
};
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, Metadata, OpenOptions},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

/// The attribute's name.
const NAME: &str = "user.thalweg.source";

/// The longest value that is read; ext4 holds no longer one.
const MAX_SIZE: usize = 4096;

/// What the attribute says.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Source {
    url: String,
    validator: Validator,
    length: u64,
    /// Seconds and nanoseconds since 1970.
    modified: (i64, i64),
}

impl Source {
    /// `None` if nothing tells versions apart, or the URL has a query: it may be a
    /// secret, and without it the URL says too little.
    fn of(key: &PartKey, file: &Metadata) -> Option<Self> {
        let PartKey::Url { url, validator: Some(validator), .. } = key else { return None };
        if url.contains('?') {
            return None;
        }
        let modified = (file.mtime(), file.mtime_nsec());
        let (url, validator) = (without_user(url), validator.clone());
        Some(Self { url, validator, length: file.len(), modified })
    }
}

fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// Marks `file`, which is complete, as `key`'s. Best effort: not every filesystem has attributes.
pub(super) fn put(file: &File, key: &PartKey) {
    let source = file.metadata().ok().and_then(|m| Source::of(key, &m));
    if let Some(text) = source.and_then(|s| serde_json::to_string(&s).ok()) {
        _ = fsetxattr(file, NAME, text.as_bytes(), XattrFlags::empty());
    }
}

fn get(file: &File) -> Option<Source> {
    let mut text = [0; MAX_SIZE];
    let n = fgetxattr(file, NAME, &mut text).ok()?;
    serde_json::from_slice(text.get(..n)?).ok()
}

/// Whether `target` is the whole of what `key` names: its digests fit, or, where
/// none are expected, it was published as this version and not changed since.
///
/// Blocks: with digests the file is read. A target that is not there, or no file, is not it.
///
/// # Errors
/// If it is there and cannot be read.
pub fn is_published_as(target: &Path, key: &PartKey) -> Result<bool, PartError> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(nonblocking).open(target);
    let file = match opened {
        Err(e) if is_absent(&e) => return Ok(false),
        opened => opened.map_err(PartError::io("open", target))?,
    };
    let found = file.metadata().map_err(PartError::io("look at", target))?;
    if !found.is_file() || key.length().is_some_and(|n| n != found.len()) {
        return Ok(false);
    }
    if key.digests().is_empty() {
        let expected = Source::of(key, &found);
        return Ok(expected.is_some() && expected == get(&file));
    }
    let mut hashers: Vec<_> = key.digests().iter().map(|d| d.hasher()).collect();
    let read = digest::feed(&mut hashers, &file, 0..found.len());
    read.map_err(PartError::io("read", target))?;
    let found = hashers.into_iter().map(digest::Hasher::finish);
    Ok(found.eq(key.digests().iter().copied()))
}

fn is_absent(error: &std::io::Error) -> bool {
    // A pipe or socket in its place is not the object either.
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::NOENT | Errno::NOTDIR | Errno::NXIO))
}
