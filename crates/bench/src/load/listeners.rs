//! CPU time, memory and descriptors of the relay's processes, and the machine's CPU time.

use anyhow::{Context as _, bail};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

/// The processes that listen on a port, and all their descendants.
pub struct ListenerProcesses {
    listeners: Vec<u32>,
}

/// CPU time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuTime {
    /// The relay's, user and system, including its ended children.
    pub relay: f64,
    /// The machine's, except idle time.
    pub machine: f64,
    /// The machine's in softirqs: see [`ListenerProcesses::cpu_time`].
    pub softirq: f64,
}

/// The number of descriptors by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptors {
    /// The number of all descriptors.
    pub all: u64,
    /// Sockets of all families.
    pub sockets: u64,
    /// Ends of pipes.
    pub pipes: u64,
}

impl ListenerProcesses {
    /// Finds the processes that listen on a port.
    ///
    /// # Errors
    /// When no process listens there that we may inspect.
    pub fn find(port: u16) -> anyhow::Result<Self> {
        let inodes = listening_inodes(port)?;
        let sockets: BTreeSet<String> = inodes.iter().map(|i| format!("socket:[{i}]")).collect();
        let holds = |pid: &u32| {
            let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let links = files.filter_map(|file| fs::read_link(file.path()).ok());
            links.into_iter().any(|link| sockets.contains(&*link.to_string_lossy()))
        };
        let listeners: Vec<u32> = processes().filter(holds).collect();
        if listeners.is_empty() {
            bail!("no process listens on port {port}, or it belongs to another user");
        }
        Ok(Self { listeners })
    }

    /// The CPU time until now.
    ///
    /// `relay` is utime + stime of proc(5), which the kernel scales to the exact time on the CPU. Without
    /// `CONFIG_IRQ_TIME_ACCOUNTING` it includes the softirq work that ran in the process's own context: on loopback,
    /// the delivery of the bytes that it sent. It does not include the delivery of bytes *to* the relay, for which its
    /// peers' sends pay, and the work of `ksoftirqd`.
    ///
    /// # Errors
    /// When the relay has ended.
    pub fn cpu_time(&self) -> anyhow::Result<CpuTime> {
        let tree = self.all_processes();
        let each = tree.iter().filter_map(|pid| Some(read_stat(*pid)?.cpu_ticks));
        let ticks: u64 = each.sum();
        if !self.listeners.iter().any(|pid| read_stat(*pid).is_some()) {
            bail!("the relay has ended");
        }
        Ok(CpuTime { relay: ticks as f64 / ticks_per_second(), ..machine_cpu_time()? })
    }

    /// Resident anonymous memory of all its processes, bytes.
    ///
    /// # Errors
    /// When the relay has ended.
    pub fn anonymous_bytes(&self) -> anyhow::Result<u64> {
        let of = |pid: &u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        };
        let each: Vec<u64> = self.all_processes().iter().filter_map(of).collect();
        if each.is_empty() {
            bail!("the relay has ended");
        }
        Ok(each.iter().sum::<u64>() * 1024)
    }

    /// The descriptors of all its processes.
    ///
    /// # Errors
    /// When the relay has ended.
    pub fn descriptors(&self) -> anyhow::Result<Descriptors> {
        let mut held = Descriptors::default();
        for pid in self.all_processes() {
            let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            for link in files.filter_map(|file| fs::read_link(file.path()).ok()) {
                let link = link.to_string_lossy();
                held.all += 1;
                held.sockets += u64::from(link.starts_with("socket:"));
                held.pipes += u64::from(link.starts_with("pipe:"));
            }
        }
        if held.all == 0 {
            bail!("the relay has ended");
        }
        Ok(held)
    }

    /// The listeners and all their descendants, each once.
    fn all_processes(&self) -> BTreeSet<u32> {
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for pid in processes() {
            if let Some(stat) = read_stat(pid) {
                children.entry(stat.parent).or_default().push(pid);
            }
        }
        let mut all = BTreeSet::new();
        let mut left = self.listeners.clone();
        while let Some(pid) = left.pop() {
            if all.insert(pid) {
                left.extend(children.get(&pid).into_iter().flatten());
            }
        }
        all
    }
}

/// CPU time of the whole machine; `relay` is 0.
///
/// # Errors
/// When /proc/stat cannot be read.
pub fn machine_cpu_time() -> anyhow::Result<CpuTime> {
    let text = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    // user nice system idle iowait irq softirq steal …; guest time is part of user time.
    let ticks: Vec<f64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let at = |i: usize| ticks.get(i).copied().unwrap_or_default() / ticks_per_second();
    let machine = [0, 1, 2, 5, 6].into_iter().map(at).sum();
    Ok(CpuTime { relay: 0.0, machine, softirq: at(6) })
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

struct Stat {
    parent: u32,
    cpu_ticks: u64,
}

/// Reads proc_pid_stat(5): fields 4 (parent) and 14 to 17 (times of the process and of its waited-for children).
fn read_stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text)
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The name in parentheses may contain any character.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let cpu_ticks = (14..=17).map(number).sum::<Option<u64>>()?;
    Some(Stat { parent: u32::try_from(number(4)?).ok()?, cpu_ticks })
}

/// The inodes of sockets of proc_net(5) `tcp` and `tcp6` in state LISTEN (0A) on `port`.
fn listening_inodes(port: u16) -> anyhow::Result<BTreeSet<String>> {
    let mut inodes = BTreeSet::new();
    for file in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        let Ok(table) = fs::read_to_string(file) else { continue };
        inodes.extend(listeners_in(&table, port).map(str::to_owned));
    }
    if inodes.is_empty() {
        bail!("no process listens on port {port}");
    }
    Ok(inodes)
}

fn listeners_in(table: &str, port: u16) -> impl Iterator<Item = &str> {
    let suffix = format!(":{port:04X}");
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.get(1)?.ends_with(&suffix) && *fields.get(3)? == "0A";
        fields.get(9).copied().filter(|_| listens)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_a_process_include_its_children() {
        let text = "42 (a ) b) S 7 1 1 0 -1 4194304 1 2 3 4 100 20 3 4 20 0 5 0 999";
        let stat = parse_stat(text).unwrap();
        assert_eq!((stat.parent, stat.cpu_ticks), (7, 127));
        assert!(parse_stat("42 (x) S 7").is_none());
    }

    #[test]
    fn listeners_are_found_by_their_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 123 1 0
   1: 0100007F:0050 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 124 1 0\n";
        assert_eq!(listeners_in(table, 80).collect::<Vec<_>>(), ["123"]);
        assert_eq!(listeners_in(table, 8080).count(), 0);
    }

    #[test]
    fn time_and_memory_of_this_process_are_measured() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let watched = ListenerProcesses::find(listener.local_addr().unwrap().port()).unwrap();
        let before = watched.anonymous_bytes().unwrap();
        // A large block, because other tests allocate in this process, too.
        let block = vec![1u8; 256 << 20];
        let after = watched.anonymous_bytes().unwrap();
        assert!(
            after.saturating_sub(before) > 200 << 20,
            "{before} {after} {}",
            block[block.len() - 1]
        );
        let first = watched.cpu_time().unwrap();
        let mut last = first;
        // Until the clock advances; a tick is 10 ms.
        while last.relay == first.relay {
            last = watched.cpu_time().unwrap();
        }
        assert!(last.relay > first.relay && last.machine >= first.machine);
        drop(listener);
    }
}
