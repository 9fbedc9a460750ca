//! Where and from which sources a run is made.

use crate::error::{ExperimentError, Result};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};
use thalweg_units::ByteSize;

/// The machine, without names that would say whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors this process may use.
    pub cores: usize,
    /// Their model.
    pub cpu: String,
    /// The kernel's release.
    pub kernel: String,
    /// Main memory.
    pub memory: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into());
        let memory = field("/proc/meminfo", "MemTotal").and_then(|kib| {
            let kib: u64 = kib.strip_suffix(" kB")?.trim().parse().ok()?;
            Some(ByteSize::from_bytes(kib * 1024).to_string())
        });
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu,
            // Distributions append names of their own after the first dash.
            kernel: release.split('-').next().unwrap_or_default().to_owned(),
            memory: memory.unwrap_or_else(|| "unknown".into()),
        }
    }
}

/// The value of the first line `name : value`.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let (_, value) =
        text.lines().filter_map(|l| l.split_once(':')).find(|(k, _)| k.trim() == name)?;
    Some(value.trim().to_owned())
}

/// What stands for the commit outside a checkout.
pub const UNKNOWN_COMMIT: &str = "unknown";

/// The commit of the checkout that holds `directory`, with `-dirty` where
/// anything in the tree differs; [`UNKNOWN_COMMIT`] outside a checkout.
pub fn commit(directory: &Path) -> String {
    let Some(head) = git(directory, &["rev-parse", "--short=12", "HEAD"]) else {
        return UNKNOWN_COMMIT.into();
    };
    let changes = git(directory, &["status", "--porcelain"]);
    if changes.is_none_or(|c| !c.is_empty()) { format!("{head}-dirty") } else { head }
}

fn git(directory: &Path, args: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    let output = git.arg("-C").arg(directory).args(args).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Refuses a commit that is dirty or unknown.
///
/// # Errors
/// [`ExperimentError::DirtyTree`].
pub fn require_clean(commit: &str) -> Result<()> {
    if commit == UNKNOWN_COMMIT || commit.ends_with("-dirty") {
        return Err(ExperimentError::DirtyTree { commit: commit.to_owned() });
    }
    Ok(())
}

/// BLAKE3 of programs, as hexadecimal digits; one that is missing counts as empty.
pub fn programs_hash(programs: &[&Path]) -> String {
    let mut hash = blake3::Hasher::new();
    for program in programs {
        let bytes = fs::read(program).unwrap_or_default();
        hash.update(&(bytes.len() as u64).to_le_bytes()).update(&bytes);
    }
    hash.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::here();
        assert!(machine.cores > 0 && machine.memory.ends_with('B'), "{machine:?}");
    }

    #[test]
    fn a_change_makes_the_commit_dirty_and_outside_it_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(commit(dir.path()), UNKNOWN_COMMIT);
        let identity = ["-c", "user.name=t", "-c", "user.email=t@t"];
        git(dir.path(), &["init", "-q"]).unwrap();
        fs::write(dir.path().join("a"), "1").unwrap();
        git(dir.path(), &["add", "a"]).unwrap();
        git(dir.path(), &[&identity[..], &["commit", "-qm", "a"]].concat()).unwrap();
        let clean = commit(dir.path());
        assert!(clean.len() == 12 && require_clean(&clean).is_ok(), "{clean}");
        fs::write(dir.path().join("b"), "").unwrap();
        let dirty = commit(dir.path());
        assert!(dirty.ends_with("-dirty") && require_clean(&dirty).is_err(), "{dirty}");
    }
}
