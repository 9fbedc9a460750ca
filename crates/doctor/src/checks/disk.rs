//! Directories that Thalweg writes to: present, writable, with free space, and quick to sync.

use std::{path::PathBuf, time::Duration};
use thalweg_base::space::Space;
use thalweg_units::ByteSize;
use thalweg_wire::doctor::Finding;

/// Less than this is full for all purposes, bytes: a roster of a large mesh has a megabyte.
const FULL: u64 = 2_000_000;

/// Fewer inodes than this are as good as none: a collection of small files creates more in a second.
const FEW_INODES: u64 = 32;

/// A sync that takes longer makes every small file wait that long.
const SLOW_SYNC: Duration = Duration::from_secs(1);

/// A directory and what became of a small file in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryFacts {
    /// What it is for, such as `state directory` or `inbox`.
    pub role: String,
    pub path: PathBuf,
    pub space: Space,
    /// How long it took to write and sync a small file, or why that failed.
    pub write: Result<Duration, WriteFault>,
    /// The free space that its use should have, bytes.
    pub comfortable: u64,
}

/// Why a small file could not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// There is no such directory.
    Absent,
    ReadOnly,
    /// No space, or no inodes.
    Full,
    /// This user may not.
    Denied,
    /// The file system has no files without a name.
    Unsupported,
    Other(String),
}

/// Whether the directory can be used.
pub fn check(facts: &DirectoryFacts) -> Vec<Finding> {
    let at = format!("{} {}", facts.role, facts.path.display());
    match &facts.write {
        Err(fault) => vec![faulty(facts, fault, &at)],
        Ok(took) => vec![space(facts, &at), sync(*took, &at)],
    }
}

fn faulty(facts: &DirectoryFacts, fault: &WriteFault, at: &str) -> Finding {
    let path = facts.path.display();
    let means = "transfers and the roster cannot be stored there";
    match fault {
        WriteFault::Unsupported => {
            Finding::unchecked("disk.write", format!("{at}: no unnamed file can be made there"))
        }
        WriteFault::Absent => Finding::error("disk.absent", format!("{at} does not exist"))
            .means(means)
            .remedy(format!("mkdir -p {path}")),
        WriteFault::ReadOnly => {
            Finding::error("disk.read-only", format!("{at} is on a read-only file system"))
                .means(means)
                .remedy(format!("mount -o remount,rw $(findmnt -no TARGET -T {path})"))
        }
        WriteFault::Denied => Finding::error("disk.rights", format!("{at}: permission denied"))
            .means(means)
            .remedy(format!("chown $(id -u) {path}")),
        WriteFault::Full => full(facts, at).means(means),
        WriteFault::Other(why) => Finding::error("disk.write", format!("{at}: {why}")).means(means),
    }
}

fn full(facts: &DirectoryFacts, at: &str) -> Finding {
    let path = facts.path.display();
    if facts.space.files.is_some_and(|left| left < FEW_INODES) {
        let left = facts.space.files.unwrap_or(0);
        return Finding::error("disk.inodes", format!("{at}: {left} inodes are left"))
            .remedy(format!("du --inodes -x {path} | sort -n | tail"));
    }
    Finding::error("disk.full", format!("{at}: {} are free", free(facts.space.bytes)))
        .remedy(format!("du -xh {path} | sort -h | tail"))
}

fn free(bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) if bytes >= 1_000_000 => {
            ByteSize::from_bytes(bytes / 1_000_000 * 1_000_000).to_string()
        }
        Some(bytes) => format!("{bytes} B"),
        None => "an unknown number of bytes".to_owned(),
    }
}

fn space(facts: &DirectoryFacts, at: &str) -> Finding {
    let Space { bytes, files, .. } = facts.space;
    let few = files.is_some_and(|left| left < FEW_INODES);
    if few || bytes.is_some_and(|free| free < FULL) {
        return full(facts, at).means("the next transfer or roster does not fit");
    }
    let seen = format!("{at}: {} are free", free(bytes));
    match bytes {
        Some(left) if left < facts.comfortable => Finding::warning("disk.low", seen)
            .means(format!("it should have {}", free(Some(facts.comfortable))))
            .remedy(format!("du -xh {} | sort -h | tail", facts.path.display())),
        _ => Finding::ok("disk.space", seen),
    }
}

fn sync(took: Duration, at: &str) -> Finding {
    let seen = format!("{at}: writing and syncing 4 KiB took {} ms", took.as_millis());
    match took > SLOW_SYNC {
        true => Finding::warning("disk.slow", seen)
            .means("every small file and every roster waits that long")
            .remedy("iostat -x 1 # which device is busy, and with what"),
        false => Finding::ok("disk.sync", seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(bytes: u64, files: u64, write: Result<Duration, WriteFault>) -> DirectoryFacts {
        let space = Space { bytes: Some(bytes), files: Some(files), is_read_only: false };
        let (role, path) = ("inbox".to_owned(), "/srv/in".into());
        DirectoryFacts { role, path, space, write, comfortable: 1_000_000_000 }
    }

    fn ids(facts: &DirectoryFacts) -> Vec<String> {
        check(facts).into_iter().map(|finding| finding.id).collect()
    }

    #[test]
    fn each_fault_of_a_directory_has_its_own_name() {
        let quick = || Ok(Duration::from_millis(3));
        for (facts, expected) in [
            (facts(1 << 40, 1 << 20, quick()), "disk.space"),
            (facts(500_000_000, 1 << 20, quick()), "disk.low"),
            (facts(1000, 1 << 20, quick()), "disk.full"),
            (facts(1 << 40, 3, quick()), "disk.inodes"),
            (facts(0, 1 << 20, Err(WriteFault::Full)), "disk.full"),
            (facts(1 << 30, 0, Err(WriteFault::Full)), "disk.inodes"),
            (facts(1 << 30, 9, Err(WriteFault::ReadOnly)), "disk.read-only"),
            (facts(1 << 30, 9, Err(WriteFault::Denied)), "disk.rights"),
            (facts(0, 0, Err(WriteFault::Absent)), "disk.absent"),
        ] {
            assert_eq!(ids(&facts)[0], expected, "{facts:?}");
        }
        let slow = facts(1 << 40, 1 << 20, Ok(Duration::from_secs(2)));
        assert_eq!(ids(&slow), ["disk.space", "disk.slow"]);
        assert!(
            check(&facts(1000, 99, quick()))[0].seen.contains("inbox /srv/in: 1000 B are free")
        );
    }
}
