//! Files of what can be asked for again: read, set aside, replaced whole.

use crate::history::lock;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{io, path::Path};
use thalweg_base::durable;

/// What a file says.
pub(super) enum Found<T> {
    /// There is none.
    Nothing,
    /// This.
    Sound(T),
    /// A newer program's; to be left alone.
    Newer(u32),
    /// Nothing that can be understood, and why.
    Damaged(String),
}

/// A file's form: the number first, that newer ones are known by.
#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    format: u32,
    #[serde(flatten)]
    body: T,
}

/// What alone is the same in all forms.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

/// Reads a file of at most `max` bytes in this format or an older one.
///
/// # Errors
/// The system's, if there is a file.
pub(super) fn read<T: DeserializeOwned>(
    file: &Path,
    max: usize,
    format: u32,
) -> io::Result<Found<T>> {
    match durable::read(file, max) {
        Ok(Some(bytes)) => Ok(parse(&bytes, format)),
        Ok(None) => Ok(Found::Nothing),
        Err(e) if e.kind() == io::ErrorKind::FileTooLarge => {
            Ok(Found::Damaged(format!("it is longer than {max} bytes")))
        }
        Err(e) => Err(e),
    }
}

pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8], format: u32) -> Found<T> {
    match serde_json::from_slice(bytes) {
        Ok(AnyFormat { format: theirs }) if theirs > format => return Found::Newer(theirs),
        Ok(_) => {}
        Err(why) => return Found::Damaged(why.to_string()),
    }
    match serde_json::from_slice::<Versioned<T>>(bytes) {
        Ok(found) => Found::Sound(found.body),
        Err(why) => Found::Damaged(why.to_string()),
    }
}

/// Replaces the file, which has the lock.
///
/// # Errors
/// The system's; the file is then as it was.
pub(super) fn write<T: Serialize>(file: &Path, body: &T, format: u32) -> io::Result<()> {
    let bytes = serde_json::to_vec(&Versioned { format, body }).map_err(io::Error::other)?;
    durable::replace(file, &bytes)
}

/// Moves a damaged file away, if it still is; in words what was done.
pub(super) fn set_aside<T: DeserializeOwned>(
    file: &Path,
    why: &str,
    max: usize,
    format: u32,
) -> String {
    let moved = || {
        let _lock = lock(file)?;
        match read::<T>(file, max, format)? {
            Found::Damaged(_) => durable::set_aside(file).map(Some),
            _ => Ok(None),
        }
    };
    let shown = file.display();
    match moved() {
        Ok(Some(aside)) => {
            format!("{shown} was corrupt ({why}) and is now {}: starting anew", aside.display())
        }
        Ok(None) => format!("{shown} was corrupt ({why}); another process has mended it"),
        Err::<_, io::Error>(e) => {
            format!("{shown} is corrupt ({why}) and cannot be moved aside: {e}")
        }
    }
}

/// What is said of a newer program's file.
pub(super) fn newer(file: &Path, format: u32) -> String {
    let file = file.display();
    format!("{file} was written by a newer thalweg (format {format}): left alone, and not used")
}
