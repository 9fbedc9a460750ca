//! The machine on which a run is made, and the sources of the programs.

use crate::error::{ExperimentError, Result};
use serde::{Deserialize, Serialize};
use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};
use thalweg_units::ByteSize;

/// A description of the machine without names that would identify its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that this process may use.
    pub cores: usize,
    /// The processor model.
    pub cpu: String,
    /// The kernel's release.
    pub kernel: String,
    pub memory: String,
}

impl Machine {
    /// Describes this machine.
    pub fn local() -> Self {
        let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into());
        let memory = field("/proc/meminfo", "MemTotal").and_then(|kib| {
            let kib: u64 = kib.strip_suffix(" kB")?.trim().parse().ok()?;
            Some(ByteSize::from_bytes(kib * 1024).to_string())
        });
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu,
            // Distributions append their own names after the first dash.
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

/// The value for the commit if the sources are unknown.
pub const UNKNOWN_COMMIT: &str = "unknown";

/// The sources of the running program: the [`commit`] of the checkout whose `target` directory contains it, or
/// [`UNKNOWN_COMMIT`] for a program elsewhere. `-foreign` is appended if `plan` (the directory of a plan that is not
/// built in) is not in that checkout, because the commit does not cover the plan.
pub fn sources(plan: Option<&Path>) -> String {
    env::current_exe().map_or_else(|_| UNKNOWN_COMMIT.into(), |own| sources_of(&own, plan))
}

fn sources_of(program: &Path, plan: Option<&Path>) -> String {
    let is_target = |d: &&Path| d.file_name().is_some_and(|name| name == "target");
    let checkout = program.ancestors().find(is_target).and_then(Path::parent);
    let commit = checkout.map_or_else(|| UNKNOWN_COMMIT.into(), commit);
    let root = |of: &Path| git(of, &["rev-parse", "--show-toplevel"]);
    let foreign = |plan: &Path| root(plan) != checkout.and_then(root);
    let known = commit != UNKNOWN_COMMIT;
    if known && plan.is_some_and(foreign) { format!("{commit}-foreign") } else { commit }
}

/// The commit of the checkout that contains `directory`, with `-dirty` if the tree has changes; [`UNKNOWN_COMMIT`]
/// outside a checkout.
pub fn commit(directory: &Path) -> String {
    let Some(head) = git(directory, &["rev-parse", "--short=12", "HEAD"]) else {
        return UNKNOWN_COMMIT.into();
    };
    let changes = git(directory, &["status", "--porcelain"]);
    if changes.is_none_or(|c| !c.is_empty()) { format!("{head}-dirty") } else { head }
}

/// The output of a git command in `directory`; `None` if it fails or there is no git.
pub(crate) fn git(directory: &Path, args: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    let output = git.arg("-C").arg(directory).args(args).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Rejects a commit that is dirty, foreign or unknown.
///
/// # Errors
/// [`ExperimentError::Uncommitted`].
pub fn require_clean(commit: &str) -> Result<()> {
    if commit == UNKNOWN_COMMIT || commit.contains('-') {
        return Err(ExperimentError::Uncommitted { commit: commit.to_owned() });
    }
    Ok(())
}

/// BLAKE3 of programs, as hexadecimal digits. A missing program counts as empty.
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
        let machine = Machine::local();
        assert!(machine.cores > 0 && machine.memory.ends_with('B'), "{machine:?}");
    }

    #[test]
    fn a_change_makes_the_commit_dirty_and_outside_a_checkout_it_is_unknown() {
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

        fs::remove_file(dir.path().join("b")).unwrap();
        let (own, elsewhere) = (dir.path().join("target/debug/x"), tempfile::tempdir().unwrap());
        assert_eq!(sources_of(&own, None), clean);
        assert_eq!(sources_of(&own, Some(dir.path())), clean);
        let foreign = sources_of(&own, Some(elsewhere.path()));
        assert!(foreign == format!("{clean}-foreign") && require_clean(&foreign).is_err());
        for copied in [dir.path().join("bin/x"), elsewhere.path().join("target/x")] {
            assert_eq!(sources_of(&copied, Some(dir.path())), UNKNOWN_COMMIT);
        }
    }
}
