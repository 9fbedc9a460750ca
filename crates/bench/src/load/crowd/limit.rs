//! A control group with a memory limit, of either version; gone with this value.

use anyhow::{Context as _, bail};
use std::{
    fs,
    path::{Path, PathBuf},
};
use thalweg_units::ByteSize;

/// Where groups are made, and the files of the limit and of the most that was charged: version 1,
/// then 2 (cgroups(7)).
const KINDS: [(&str, [&str; 2]); 2] = [
    ("/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.max_usage_in_bytes"]),
    ("/sys/fs/cgroup", ["memory.max", "memory.peak"]),
];

/// The group.
pub struct Limit {
    directory: PathBuf,
    most: &'static str,
}

impl Limit {
    /// Makes one.
    ///
    /// # Errors
    /// If this system lets us make none.
    pub fn new(name: &str, bytes: ByteSize) -> anyhow::Result<Self> {
        let name = format!("thalweg-load-{}-{name}", std::process::id());
        for (root, [limit, most]) in KINDS {
            let directory = Path::new(root).join(&name);
            if fs::create_dir(&directory).is_err() {
                continue;
            }
            let made = Self { directory, most };
            if fs::write(made.directory.join(limit), bytes.as_bytes().to_string()).is_ok() {
                return Ok(made);
            }
        }
        bail!("no control group with a memory limit can be made here: it takes root")
    }

    /// What a process writes itself into.
    pub fn processes(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// The most that was charged, pages of files with it, MiB.
    ///
    /// # Errors
    /// The system's.
    pub fn peak_mib(&self) -> anyhow::Result<f64> {
        let text = fs::read_to_string(self.directory.join(self.most));
        let text = text.context("the kernel does not tell the most that was charged")?;
        Ok(text.trim().parse::<f64>()? / f64::from(1 << 20))
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        // Its processes have ended; if not, it stays until the system ends.
        let _ = fs::remove_dir(&self.directory);
    }
}
