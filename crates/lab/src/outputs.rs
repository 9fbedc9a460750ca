//! Standard outputs that take nothing, for tests of programs that print.

use std::{fs::OpenOptions, io, process::Stdio};

/// A file on a full disk: each write fails with `ENOSPC`.
///
/// # Errors
/// If the system has no /dev/full.
pub fn full() -> io::Result<Stdio> {
    Ok(OpenOptions::new().write(true).open("/dev/full")?.into())
}

/// The writing end of a pipe whose reader has left: each write fails with `EPIPE`.
///
/// # Errors
/// The system's.
pub fn closed() -> io::Result<Stdio> {
    let (reader, writer) = io::pipe()?;
    drop(reader);
    Ok(writer.into())
}
