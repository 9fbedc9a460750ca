//! What a process spent.

use anyhow::Context as _;
use std::fs;

/// s of CPU time, user and system, until now.
///
/// # Errors
/// When it is gone.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).context("the process is gone")?;
    let ticks = ticks(&text).context("the kernel tells no times")?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// proc_pid_stat(5), fields 14 and 15; the name, in brackets, may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// A line of proc_pid_status(5) in MiB: `VmHWM` is the most that was resident.
///
/// # Errors
/// When it is gone.
pub fn memory_mib(pid: u32, line: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).context("the process is gone")?;
    let found = text.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kb = found.and_then(|text| text.trim().strip_suffix("kB"));
    Ok(kb.context("the kernel tells no such line")?.trim().parse::<f64>()? / 1024.0)
}

/// kB that this process has in memory; 0 where the kernel does not say.
pub fn own_memory_kb() -> u64 {
    (memory_mib(std::process::id(), "VmRSS").unwrap_or_default() * 1024.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stand_behind_a_name_with_blanks_and_brackets() {
        assert_eq!(ticks("42 (a ) b) S 7 1 1 0 -1 4194304 1 2 3 4 100 20 3 4 20 0 5"), Some(120));
        assert_eq!(ticks("42 (x) S 7"), None);
        assert!(memory_mib(std::process::id(), "VmHWM").unwrap() > 1.0);
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
    }
}
