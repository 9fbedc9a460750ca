//! How much of a file has been read.

use crate::commands::text::printable;
use std::{
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    time::{Duration, Instant},
};
use thalweg_console::note;

/// Between two lines of progress.
const TELL: Duration = Duration::from_secs(2);

/// A file whose reader is told how much of it was read.
pub struct Progress<R> {
    file: R,
    /// What is done with the file, and its name.
    label: String,
    size: u64,
    at: u64,
    /// The byte to which the reader has moved last.
    begun: Option<u64>,
    since: Instant,
}

impl<R> Progress<R> {
    /// `doing`: as `sending`. `size`: the length of `file`, in bytes.
    pub fn new(file: R, doing: &str, name: &Path, size: u64) -> Self {
        let label = format!("{doing} {}", printable(name));
        Self { file, label, size, at: 0, begun: None, since: Instant::now() }
    }

    /// The byte to which the reader has moved last; `None`: it has not moved.
    pub const fn begun(&self) -> Option<u64> {
        self.begun
    }
}

impl<R: Read> Read for Progress<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.at += n as u64;
        if self.since.elapsed() >= TELL {
            let percent = self.at * 100 / self.size.max(1);
            note!("thalweg: {}: {percent} % of {} MB", self.label, self.size / 1_000_000);
            self.since = Instant::now();
        }
        Ok(n)
    }
}

impl<R: Seek> Seek for Progress<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = self.file.seek(to)?;
        if let SeekFrom::Start(from) = to {
            self.begun = Some(from);
        }
        Ok(self.at)
    }
}
