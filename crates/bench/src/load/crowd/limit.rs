//! A control group with a memory limit, of version 1 or 2; removed on drop.

use anyhow::{Context as _, bail};
use std::{
    fs,
    path::{Path, PathBuf},
};
use thalweg_units::ByteSize;

/// The directories of groups with the files of the limit and of the peak charge: version 1, then version 2
/// (cgroups(7)).
const KINDS: [(&str, [&str; 2]); 2] = [
    ("/sys/fs/cgroup/memory", ["memory.limit_in_bytes", "memory.max_usage_in_bytes"]),
    ("/sys/fs/cgroup", ["memory.max", "memory.peak"]),
];

/// A control group with a memory limit.
pub struct MemoryLimit {
    directory: PathBuf,
    most: &'static str,
}

impl MemoryLimit {
    /// Creates a group.
    ///
    /// # Errors
    /// When this system does not allow it.
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
        bail!("cannot create a control group with a memory limit; run as root")
    }

    /// The file to which a process writes its id to join the group.
    pub fn processes(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// The peak charge, including pages of files, MiB.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn peak_mib(&self) -> anyhow::Result<f64> {
        let text = fs::read_to_string(self.directory.join(self.most));
        let text =
            text.context("the kernel does not report the peak memory of the control group")?;
        Ok(text.trim().parse::<f64>()? / f64::from(1 << 20))
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // The processes of the group have ended; otherwise the group stays until the system ends.
        let _ = fs::remove_dir(&self.directory);
    }
}
