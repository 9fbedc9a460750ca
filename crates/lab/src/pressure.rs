//! CPU pressure: how long tasks waited for a processor (pressure stall information, Linux ≥ 4.20).
//!
//! If this process is in a control group (version 2) below the root, the pressure is that of the group, because work
//! outside it that waits for ours does not harm a measurement. Otherwise it is that of the whole machine
//! (`/proc/pressure/cpu`).

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// A measurement window over the kernel's counter of time in which *some* task waited.
#[derive(Debug)]
pub struct Pressure {
    start: Instant,
    file: PathBuf,
    waited_us: Option<u64>,
}

/// The pressure file that covers this process.
fn find_pressure_file() -> PathBuf {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    let own = own_group(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    own.filter(|file| file.exists()).unwrap_or_else(|| "/proc/pressure/cpu".into())
}

/// The pressure file of the version-2 control group named in `groups` (the text of `/proc/self/cgroup`), below the
/// mount point in `mounts` (the text of `/proc/self/mountinfo`); `None` for the root group.
fn own_group(groups: &str, mounts: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let point = mount.split(' ').nth(4)?;
    (!group.is_empty()).then(|| Path::new(point).join(group).join("cpu.pressure"))
}

/// The time in which some task waited since the group or the machine started, µs.
fn read_total_us(file: &Path) -> Option<u64> {
    parse_total(&fs::read_to_string(file).ok()?)
}

/// The value of `total` in the line `some avg10=… total=µs`.
fn parse_total(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some"))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

impl Pressure {
    /// Starts a measurement window.
    pub fn start() -> Self {
        let file = find_pressure_file();
        Self { start: Instant::now(), waited_us: read_total_us(&file), file }
    }

    /// The share of the window in which some task waited, percent, 0..=100; `None` if the kernel does not report it.
    pub fn percent(&self) -> Option<f64> {
        let waited = read_total_us(&self.file)?.saturating_sub(self.waited_us?);
        let percent = waited as f64 / 1e4 / self.start.elapsed().as_secs_f64().max(1e-6);
        Some(percent.min(100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_some_is_read() {
        let text = "some avg10=2.18 avg60=1.57 avg300=1.26 total=15284623\nfull total=0\n";
        assert_eq!(parse_total(text), Some(15_284_623));
        assert_eq!(parse_total("full total=3"), None);
    }

    #[test]
    fn the_own_group_is_found_below_its_mount_unless_it_is_the_root() {
        let mounts = "31 1 0:9 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let own = own_group("9:name=systemd:/\n0::/runs/a\n", mounts);
        let file = "/sys/fs/cgroup/unified/runs/a/cpu.pressure";
        assert_eq!(own.as_deref(), Some(Path::new(file)));
        assert_eq!(own_group("0::/\n", mounts), None);
        assert_eq!(own_group("0::/a\n", "no such mount\n"), None);
        assert_eq!(own_group("8:pids:/\n", mounts), None);
    }
}
