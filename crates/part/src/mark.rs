//! Marks published files with their source, so that the same command need not fetch them again.
//!
//! The extended attribute [`NAME`] holds JSON: the URL, the validator and the length that the server gave, and the
//! file's modification time. It is a hint, written if the filesystem supports it. It counts only while the length and
//! the modification time are unchanged, and only after the server has given the same validator again.

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

/// The name of the attribute.
const NAME: &str = "user.thalweg.source";

/// The longest value that is read, which is also the limit of ext4.
const MAX_SIZE: usize = 4096;

/// The content of the attribute.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct SourceMark {
    url: String,
    validator: Validator,
    length: u64,
    /// Seconds and nanoseconds since 1970.
    modified: (i64, i64),
}

impl SourceMark {
    /// `None` if there is no validator, or the URL has a query, which may be a secret, while the URL without it is
    /// ambiguous.
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

/// Marks `file`, which is complete, with its source. Best effort, because not every filesystem has attributes.
pub(super) fn put(file: &File, key: &PartKey) {
    let source = file.metadata().ok().and_then(|m| SourceMark::of(key, &m));
    if let Some(text) = source.and_then(|s| serde_json::to_string(&s).ok()) {
        _ = fsetxattr(file, NAME, text.as_bytes(), XattrFlags::empty());
    }
}

fn get(file: &File) -> Option<SourceMark> {
    let mut text = [0; MAX_SIZE];
    let n = fgetxattr(file, NAME, &mut text).ok()?;
    serde_json::from_slice(text.get(..n)?).ok()
}

/// Whether `target` is the complete object of `key`: its digests match, or, if none are expected, it was published as
/// this version and has not changed since.
///
/// Blocks; it reads the file if there are digests. A target that is absent or no file does not match.
///
/// # Errors
/// If the target exists and cannot be read.
pub fn is_published_as(target: &Path, key: &PartKey) -> Result<bool, PartError> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(nonblocking).open(target);
    let file = match opened {
        Err(e) if is_absent(&e) => return Ok(false),
        opened => opened.map_err(PartError::io("open", target))?,
    };
    let found = file.metadata().map_err(PartError::io("stat", target))?;
    if !found.is_file() || key.length().is_some_and(|n| n != found.len()) {
        return Ok(false);
    }
    if key.digests().is_empty() {
        let expected = SourceMark::of(key, &found);
        return Ok(expected.is_some() && expected == get(&file));
    }
    let mut hashers: Vec<_> = key.digests().iter().map(|d| d.hasher()).collect();
    let read = digest::feed(&mut hashers, &file, 0..found.len());
    read.map_err(PartError::io("read", target))?;
    let found = hashers.into_iter().map(digest::Hasher::finish);
    Ok(found.eq(key.digests().iter().copied()))
}

fn is_absent(error: &std::io::Error) -> bool {
    // A pipe or socket at this path is not the object either.
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::NOENT | Errno::NOTDIR | Errno::NXIO))
}
