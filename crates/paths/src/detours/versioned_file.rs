//! Files of data that can be requested again: read, set aside if damaged, and replaced as a whole.

use crate::history::lock;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{io, path::Path};
use thalweg_base::durable;

/// The contents of a file.
pub(super) enum FileContent<T> {
    /// The file does not exist.
    Missing,
    Valid(T),
    /// A file of a newer program, with its format number. It must not be changed.
    Newer(u32),
    /// The file is damaged, with the reason.
    Damaged(String),
}

/// The form of a file: the format number, by which newer files are recognised, and the body.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    format: u32,
    #[serde(flatten)]
    body: T,
}

/// The part that is the same in all formats.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

/// Reads a file of at most `max` bytes in this format or an older one.
///
/// # Errors
/// I/O errors, if the file exists.
pub(super) fn read<T: DeserializeOwned>(
    file: &Path,
    max: usize,
    format: u32,
) -> io::Result<FileContent<T>> {
    match durable::read(file, max) {
        Ok(Some(bytes)) => Ok(parse(&bytes, format)),
        Ok(None) => Ok(FileContent::Missing),
        Err(e) if e.kind() == io::ErrorKind::FileTooLarge => {
            Ok(FileContent::Damaged(format!("it is longer than {max} bytes")))
        }
        Err(e) => Err(e),
    }
}

pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8], format: u32) -> FileContent<T> {
    match serde_json::from_slice(bytes) {
        Ok(AnyFormat { format: theirs }) if theirs > format => return FileContent::Newer(theirs),
        Ok(_) => {}
        Err(why) => return FileContent::Damaged(why.to_string()),
    }
    match serde_json::from_slice::<Versioned<T>>(bytes) {
        Ok(found) => FileContent::Valid(found.body),
        Err(why) => FileContent::Damaged(why.to_string()),
    }
}

/// Replaces the file. The caller holds its lock.
///
/// # Errors
/// I/O errors. The file is then unchanged.
pub(super) fn write<T: Serialize>(file: &Path, body: &T, format: u32) -> io::Result<()> {
    let bytes = serde_json::to_vec(&Versioned { format, body }).map_err(io::Error::other)?;
    durable::replace(file, &bytes)
}

/// Moves a damaged file aside, unless another process has replaced it. Returns a message about what was done.
pub(super) fn set_aside<T: DeserializeOwned>(
    file: &Path,
    why: &str,
    max: usize,
    format: u32,
) -> String {
    let moved = || {
        let _lock = lock(file)?;
        match read::<T>(file, max, format)? {
            FileContent::Damaged(_) => durable::set_aside(file).map(Some),
            _ => Ok(None),
        }
    };
    let shown = file.display();
    match moved() {
        Ok(Some(aside)) => {
            format!(
                "{shown} was corrupt ({why}) and was moved to {}; starting with an empty file",
                aside.display()
            )
        }
        Ok(None) => format!("{shown} was corrupt ({why}); another process has replaced it"),
        Err::<_, io::Error>(e) => {
            format!("{shown} is corrupt ({why}) and cannot be moved aside: {e}")
        }
    }
}

/// The message about a newer program's file.
pub(super) fn newer(file: &Path, format: u32) -> String {
    let file = file.display();
    format!(
        "{file} was written by a newer thalweg (format {format}): it is not used and not changed"
    )
}
