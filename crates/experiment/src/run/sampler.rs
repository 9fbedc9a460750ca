//! Samples sockets while an arm runs, at increasing intervals.

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

/// The time of the first sample, early enough for short arms.
const FIRST: Duration = Duration::from_millis(60);
/// The factor between intervals: samples are 0.06, 0.3, 1.3, 5.1, 20.5 s after the start. A sample costs a process per
/// host and must not disturb a long run.
const BACKOFF_FACTOR: u32 = 4;

/// The most other namespaces that a sample enters; each costs a process.
const NAMESPACES_MAX: usize = 4;

/// Samples until `stop` receives a message or closes.
///
/// In a lab it samples the connections of `hosts` that leave their host. On this machine it samples the sockets of the
/// processes `roots` and their descendants, in any network namespace.
pub fn watch(network: &Network, hosts: &[String], roots: &[u32], stop: &Receiver<()>) -> Sockets {
    let mut sockets = Sockets::default();
    let mut wait = FIRST;
    while stop.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        match network {
            Network::Lab(lab) => {
                for host in hosts {
                    let mut ss = lab.command(host, "ss");
                    sockets.merge(&sample(ss.arg("-tinmH"), leaves_host));
                }
            }
            Network::Host => sockets.merge(&sample_processes(roots)),
        }
        wait *= BACKOFF_FACTOR;
    }
    sockets
}

/// Runs `ss` and parses its output. The sample is empty if `ss` cannot be run.
fn sample(ss: &mut Command, wanted: impl Fn(&str) -> bool) -> Sockets {
    match ss.stdin(Stdio::null()).stderr(Stdio::null()).output() {
        Ok(output) => parse(&String::from_utf8_lossy(&output.stdout), wanted),
        Err(_) => Sockets::default(),
    }
}

fn sample_processes(roots: &[u32]) -> Sockets {
    let pids = descendants(roots);
    let own = namespace("self");
    let mut sockets = sample(Command::new("ss").arg("-tinmHp"), |line| belongs_to(line, &pids));
    let mut seen = BTreeSet::new();
    for pid in &pids {
        let there = namespace(&pid.to_string());
        if there.is_some() && there != own && seen.len() < NAMESPACES_MAX && seen.insert(there) {
            let mut enter = Command::new("nsenter");
            enter.args(["-t", &pid.to_string(), "-n", "ss", "-tinmH"]);
            sockets.merge(&sample(&mut enter, leaves_host));
        }
    }
    sockets
}

fn namespace(pid: &str) -> Option<String> {
    let link = fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
    Some(link.display().to_string())
}

/// `roots` and all their descendants.
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
