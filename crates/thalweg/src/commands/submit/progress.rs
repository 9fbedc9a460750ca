//! Reports how much of a file has been read.

use crate::commands::text::printable;
use std::{
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    time::{Duration, Instant},
};
use thalweg_console::note;

/// The time between progress lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// A file that prints how much of it has been read.
pub struct Progress<R> {
    file: R,
    /// The action and the file's name, e.g. `sending return.pdf`.
    label: String,
    size: u64,
    at: u64,
    /// The offset to which the reader has last moved.
    begun: Option<u64>,
    since: Instant,
}

impl<R> Progress<R> {
    /// Creates it; `doing` is the action, e.g. `sending`, and `size` the length of `file` in bytes.
    pub fn new(file: R, doing: &str, name: &Path, size: u64) -> Self {
        let label = format!("{doing} {}", printable(name));
        Self { file, label, size, at: 0, begun: None, since: Instant::now() }
    }

    /// The offset to which the reader has last moved; `None` if it has not moved.
    pub const fn begun(&self) -> Option<u64> {
        self.begun
    }
}

impl<R: Read> Read for Progress<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buffer)?;
        self.at += n as u64;
        if self.since.elapsed() >= REPORT_INTERVAL {
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
