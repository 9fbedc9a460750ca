//! Reads the CPU time and memory of processes from /proc.

use anyhow::Context as _;
use std::fs;

/// The CPU time of a process until now, user and system, s.
///
/// # Errors
/// When the process does not exist.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let text =
        fs::read_to_string(format!("/proc/{pid}/stat")).context("the process no longer exists")?;
    let ticks = ticks(&text).context("the kernel does not report CPU times")?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// A process and all its descendants, as /proc/PID/task/TID/children lists them (Linux ≥ 3.5).
pub fn family(pid: u32) -> Vec<u32> {
    let (mut found, mut at) = (vec![pid], 0);
    while let Some(parent) = found.get(at) {
        let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let lists =
            threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        let children: Vec<u32> = lists
            .flat_map(|list| {
                list.split(' ').filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
            })
            .collect();
        found.extend(children);
        at += 1;
    }
    found
}

/// The ticks of proc_pid_stat(5), fields 14 and 15. The name in parentheses may contain any character.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// A line of proc_pid_status(5), MiB; `VmHWM` is the peak resident memory.
///
/// # Errors
/// When the process does not exist.
pub fn memory_mib(pid: u32, line: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))
        .context("the process no longer exists")?;
    let found = text.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kb = found.and_then(|text| text.trim().strip_suffix("kB"));
    Ok(kb.context("the kernel does not report this value")?.trim().parse::<f64>()? / 1024.0)
}

/// Resident memory of this process, kB; 0 if the kernel does not report it.
pub fn own_memory_kb() -> u64 {
    (memory_mib(std::process::id(), "VmRSS").unwrap_or_default() * 1024.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grandchild_belongs_to_the_family() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "exec 3<&0; sh -c 'echo; read x' <&3 & wait"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        std::io::Read::read_exact(shell.stdout.as_mut().unwrap(), &mut line).unwrap();
        let found = family(std::process::id());
        assert!(found.contains(&shell.id()) && family(shell.id()).len() == 2, "{found:?}");
        shell.kill().unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn times_are_parsed_after_a_name_with_blanks_and_parentheses() {
        assert_eq!(ticks("42 (a ) b) S 7 1 1 0 -1 4194304 1 2 3 4 100 20 3 4 20 0 5"), Some(120));
        assert_eq!(ticks("42 (x) S 7"), None);
        assert!(memory_mib(std::process::id(), "VmHWM").unwrap() > 1.0);
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
    }
}
