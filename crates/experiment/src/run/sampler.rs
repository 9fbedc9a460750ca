//! Looks at sockets while an arm runs, at widening intervals.

use super::{
    network::Network,
    sockets::{belongs_to, leaves_host, parse},
};
use crate::record::Sockets;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::Duration,
};

/// The first look: a short arm must be seen too.
const FIRST: Duration = Duration::from_millis(60);
/// Each wait is so much longer than the last: 0.06, 0.3, 1.3, 5.1, 20.5 s after the
/// start; a look costs a process per host, and must not disturb a long run.
const WIDER: u32 = 4;

/// The most other namespaces that one look enters: each costs a process.
const NAMESPACES_MAX: usize = 4;

/// Samples until `stop` says so or closes.
///
/// In the lab: the sockets of `hosts` that leave their host. On this machine:
/// those of the arm's processes `roots` and their descendants, in whatever
/// network namespace they are.
pub fn watch(network: &Network, hosts: &[String], roots: &[u32], stop: &Receiver<()>) -> Sockets {
    let mut sockets = Sockets::default();
    let mut wait = FIRST;
    while stop.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        match network {
            Network::Lab(lab) => {
                for host in hosts {
                    let mut ss = lab.command(host, "ss");
                    sockets.merge(&look(ss.arg("-tinmH"), leaves_host));
                }
            }
            Network::Host => sockets.merge(&of_processes(roots)),
        }
        wait *= WIDER;
    }
    sockets
}

/// Runs `ss`; where it cannot be run, nothing is seen.
fn look(ss: &mut Command, wanted: impl Fn(&str) -> bool) -> Sockets {
    match ss.stdin(Stdio::null()).stderr(Stdio::null()).output() {
        Ok(output) => parse(&String::from_utf8_lossy(&output.stdout), wanted),
        Err(_) => Sockets::default(),
    }
}

fn of_processes(roots: &[u32]) -> Sockets {
    let pids = descendants(roots);
    let own = namespace("self");
    let mut sockets = look(Command::new("ss").arg("-tinmHp"), |line| belongs_to(line, &pids));
    let mut seen = BTreeSet::new();
    for pid in &pids {
        let there = namespace(&pid.to_string());
        if there.is_some() && there != own && seen.len() < NAMESPACES_MAX && seen.insert(there) {
            let mut enter = Command::new("nsenter");
            enter.args(["-t", &pid.to_string(), "-n", "ss", "-tinmH"]);
            sockets.merge(&look(&mut enter, leaves_host));
        }
    }
    sockets
}

fn namespace(pid: &str) -> Option<String> {
    let link = fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
    Some(link.display().to_string())
}

/// `roots` and all processes that stem from them.
fn descendants(roots: &[u32]) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok())
            && let Some(parent) = parent(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut all = roots.to_vec();
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        all.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    all
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(descendants(&[std::process::id()]).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
