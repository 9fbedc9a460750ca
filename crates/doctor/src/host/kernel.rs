//! Limits, TCP settings, holders of ports and packet filters, from /proc and from the programs that list them.

use crate::checks::{limits::LimitFacts, tcp::TcpFacts};
use rustix::process::{Resource, getrlimit};
use std::{fs, path::PathBuf, process::Command, str::FromStr};

/// A process by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(pub u32);

impl Process {
    fn file(self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.0).into()
    }

    fn name(self) -> String {
        fs::read_to_string(self.file("comm")).unwrap_or_default().trim().to_owned()
    }
}

/// The limits of a running node.
pub fn process_limits(node: Process, connections: u64) -> LimitFacts {
    let text = fs::read_to_string(node.file("limits")).unwrap_or_default();
    let open = fs::read_dir(node.file("fd")).ok().map(|all| all.count() as u64);
    LimitFacts {
        of: format!("the node (process {})", node.0),
        // A node raises its soft limit to the hard one.
        descriptors: limit(&text, "Max open files"),
        open,
        connections,
        file_size: limit(&text, "Max file size"),
        ..group(node, machine())
    }
}

/// The limits of this process, which a node started here would have.
pub fn command_limits(connections: u64) -> LimitFacts {
    LimitFacts {
        of: "a node started here".to_owned(),
        descriptors: getrlimit(Resource::Nofile).maximum,
        connections,
        file_size: getrlimit(Resource::Fsize).current,
        ..group(Process(std::process::id()), machine())
    }
}

/// The hard limit in a line of proc_pid_limits(5); `None`: unlimited or unknown.
fn limit(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn machine() -> LimitFacts {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let available = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let tracked = |name: &str| number(format!("/proc/sys/net/netfilter/nf_conntrack_{name}"));
    let tracked = tracked("count").zip(tracked("max")).filter(|(_, most)| *most > 0);
    LimitFacts { available: available.map(|kb| kb * 1024), tracked, ..LimitFacts::default() }
}

/// The bounds of the process's control groups, of either version.
fn group(process: Process, facts: LimitFacts) -> LimitFacts {
    let groups = fs::read_to_string(process.file("cgroup")).unwrap_or_default();
    let memory =
        [("memory.limit_in_bytes", "memory.usage_in_bytes"), ("memory.max", "memory.current")];
    let memory = memory.iter().find_map(|(most, now)| bound(&groups, "memory", most, now));
    let processes = bound(&groups, "pids", "pids.max", "pids.current");
    // Version 1 shows a number near 2^63 for `no limit`.
    LimitFacts { memory: memory.filter(|(most, _)| *most < 1 << 60), processes, ..facts }
}

/// The narrowest bound from the process's group up to the root of the hierarchy, and what is used of it.
fn bound(groups: &str, controller: &str, most: &str, now: &str) -> Option<(u64, u64)> {
    let mut found: Option<(u64, u64)> = None;
    for (root, path) in hierarchies(groups, controller) {
        let mut at = root.join(path.trim_start_matches('/'));
        while at.starts_with(&root) {
            let both = number(at.join(most)).zip(number(at.join(now)));
            found = match (found, both) {
                (Some(old), Some(new)) if new.0 >= old.0 => Some(old),
                (old, new) => new.or(old),
            };
            if !at.pop() {
                break;
            }
        }
    }
    found
}

/// Where the groups of this controller are mounted, and the process's path there.
fn hierarchies(groups: &str, controller: &str) -> Vec<(PathBuf, String)> {
    let of_line = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (_, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let root = match names {
            "" => "/sys/fs/cgroup".into(),
            _ if names.split(',').any(|name| name == controller) => {
                PathBuf::from("/sys/fs/cgroup").join(names)
            }
            _ => return None,
        };
        Some((root, path.to_owned()))
    };
    groups.lines().filter_map(of_line).collect()
}

fn number<T: FromStr>(path: impl AsRef<std::path::Path>) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The settings of TCP, without paths.
pub fn tcp() -> TcpFacts {
    let text = |name: &str| fs::read_to_string(format!("/proc/sys/net/{name}")).ok();
    let numbers = |name: &str| {
        let all: Vec<u64> = text(name)?.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        Some(all)
    };
    let three = |name: &str| <[u64; 3]>::try_from(numbers(name)?).ok();
    let is_on = |name: &str| Some(*numbers(name)?.first()? != 0);
    let words = |name: &str| {
        Some(text(name)?.split_whitespace().map(str::to_owned).collect::<Vec<String>>())
    };
    let used = words("ipv4/tcp_congestion_control").and_then(|all| all.into_iter().next());
    let port = |n: u64| u16::try_from(n).ok();
    let range = numbers("ipv4/ip_local_port_range").unwrap_or_default();
    let ports = range.first().zip(range.get(1)).and_then(|(a, b)| port(*a).zip(port(*b)));
    TcpFacts {
        receive: three("ipv4/tcp_rmem"),
        send: three("ipv4/tcp_wmem"),
        window_scaling: is_on("ipv4/tcp_window_scaling"),
        selective_acknowledgement: is_on("ipv4/tcp_sack"),
        congestion: used.zip(words("ipv4/tcp_available_congestion_control")),
        ports,
        backlog: number("/proc/sys/net/core/somaxconn"),
        paths: Vec::new(),
    }
}

/// The process that listens at this TCP port, as far as this user may see.
pub fn port_holder(port: u16) -> Option<String> {
    let inode = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        text.lines().find_map(|line| listener(line, port))
    })?;
    let link = format!("socket:[{inode}]");
    let holds = |pid: &u32| {
        let files = fs::read_dir(Process(*pid).file("fd")).into_iter().flatten().flatten();
        { files }.any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == &*link))
    };
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    Some(match pids.find(holds) {
        Some(pid) => format!("{} (process {pid})", Process(pid).name()),
        None => "a process of another user".to_owned(),
    })
}

/// The inode of a listener at this port in a line of /proc/net/tcp.
fn listener(line: &str, port: u16) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let at = u16::from_str_radix(fields.get(1)?.rsplit_once(':')?.1, 16).ok()?;
    // 0A: TCP_LISTEN.
    (at == port && *fields.get(3)? == "0A").then(|| fields.get(9)?.parse().ok()).flatten()
}

/// The rules of the packet filter, as its own program lists them.
///
/// # Errors
/// Why they cannot be read: no such program, or no right.
pub fn packet_filter() -> Result<String, String> {
    let run = |program: &str, args: &[&str]| {
        let output =
            Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    };
    run("nft", &["list", "ruleset"]).or_else(|why| run("iptables-save", &[]).map_err(|_| why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn this_process_is_found_by_its_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = port_holder(listener.local_addr().unwrap().port()).unwrap();
        assert!(holder.contains(&std::process::id().to_string()), "{holder}");
    }

    #[test]
    fn hard_limits_are_read_by_name() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max file size             unlimited            unlimited            bytes\n\
                    Max open files            1024                 20000                files\n";
        assert_eq!(limit(text, "Max open files"), Some(20_000));
        assert_eq!(limit(text, "Max file size"), None);
        let own = process_limits(Process(std::process::id()), 0);
        assert!(own.descriptors > Some(0) && own.open > Some(0), "{own:?}");
    }

    #[test]
    fn groups_of_both_versions_are_found() {
        let groups = "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/c\n";
        let of = |controller| hierarchies(groups, controller);
        assert_eq!(of("memory")[0], ("/sys/fs/cgroup/memory".into(), "/a/b".to_owned()));
        assert_eq!(of("pids"), [(PathBuf::from("/sys/fs/cgroup"), "/c".to_owned())]);
    }

    #[test]
    fn the_kernels_settings_are_read() {
        let facts = tcp();
        assert!(facts.receive.is_some() && facts.congestion.is_some() && facts.ports.is_some());
    }
}
