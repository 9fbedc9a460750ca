//! Bytes on this machine's TCP connections, as the kernel counts them.

use anyhow::{Context as _, ensure};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::Command,
};

/// The newest counts of each connection that was seen.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    ends: BTreeMap<u64, SocketCounts>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SocketCounts {
    sent: u64,
    received: u64,
    is_ours: bool,
}

impl ConnectionCounts {
    /// Reads the counts of all connections and remembers which ones belong to the process `pid`.
    ///
    /// # Errors
    /// When `ss` is missing or fails.
    pub fn update(&mut self, pid: u32) -> anyhow::Result<()> {
        let ours = inodes(pid);
        let output = Command::new("ss").args(["-tineHO"]).output().context("cannot run `ss`")?;
        ensure!(output.status.success(), "ss: {}", String::from_utf8_lossy(&output.stderr));
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Some((inode, end)) = parse(line) {
                let known = self.ends.entry(inode).or_default();
                known.sent = known.sent.max(end.sent);
                known.received = known.received.max(end.received);
                known.is_ours |= ours.contains(&inode);
            }
        }
        Ok(())
    }

    /// Bytes that the process sent and received.
    pub fn own_bytes(&self) -> (u64, u64) {
        let ours = self.ends.values().filter(|end| end.is_ours);
        ours.fold((0, 0), |sum, end| (sum.0 + end.sent, sum.1 + end.received))
    }
}

/// The inodes of the sockets that a process has open.
fn inodes(pid: u32) -> BTreeSet<u64> {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    let number = |link: std::path::PathBuf| {
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    links.filter_map(number).collect()
}

/// Parses a line of `ss -tineHO`; `None` if it has no inode.
fn parse(line: &str) -> Option<(u64, SocketCounts)> {
    let number = |name: &str| {
        let mut words = line.split_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.parse::<u64>().ok())
    };
    let inode = number("ino:").filter(|inode| *inode > 0)?;
    let [sent, received] =
        ["bytes_sent:", "bytes_received:"].map(|name| number(name).unwrap_or_default());
    Some((inode, SocketCounts { sent, received, is_ours: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_a_line_are_parsed() {
        let line = "ESTAB 0 0 127.0.0.1:46134 127.0.0.1:22 timer:(on,1ms,0) ino:77 sk:1 <-> ts \
                    cubic bytes_sent:3000 bytes_acked:3001 bytes_received:5 rcv_space:65536";
        assert_eq!(
            parse(line),
            Some((77, SocketCounts { sent: 3000, received: 5, is_ours: false }))
        );
        assert_eq!(parse("TIME-WAIT 0 0 127.0.0.1:1 127.0.0.1:2 ino:0 sk:9"), None);
    }
}
