//! Standard outputs that fail on every write, for tests of programs that print.

use std::{fs::OpenOptions, io, process::Stdio};

/// A file on a full disk: each write fails with `ENOSPC`.
///
/// # Errors
/// If the system has no /dev/full.
pub fn full_disk() -> io::Result<Stdio> {
    Ok(OpenOptions::new().write(true).open("/dev/full")?.into())
}

/// The writing end of a pipe whose reading end is closed: each write fails with `EPIPE`.
///
/// # Errors
/// If the system cannot create a pipe.
pub fn closed_pipe() -> io::Result<Stdio> {
    let (reader, writer) = io::pipe()?;
    drop(reader);
    Ok(writer.into())
}
