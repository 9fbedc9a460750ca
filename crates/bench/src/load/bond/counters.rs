//! Network counters of the kernel for this network namespace.

use anyhow::Context as _;
use std::{collections::BTreeMap, fs};

/// Bytes received by each interface except loopback (IP packets, as the kernel counts them).
///
/// # Errors
/// When the counters cannot be read.
pub fn received_bytes() -> anyhow::Result<BTreeMap<String, u64>> {
    Ok(parse_devices(&fs::read_to_string("/proc/self/net/dev")?, &[RECEIVED]))
}

/// Bytes received and sent, in sum, by each interface except loopback.
///
/// # Errors
/// When the counters cannot be read.
pub fn total_bytes() -> anyhow::Result<BTreeMap<String, u64>> {
    Ok(parse_devices(&fs::read_to_string("/proc/self/net/dev")?, &[RECEIVED, SENT]))
}

/// Columns of proc_pid_net(5) `dev`.
const RECEIVED: usize = 0;
const SENT: usize = 8;

fn parse_devices(text: &str, places: &[usize]) -> BTreeMap<String, u64> {
    let line = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<&str> = counts.split_whitespace().collect();
        let of = |at: &usize| counts.get(*at)?.parse::<u64>().ok();
        Some((name.trim().to_owned(), places.iter().map(of).sum::<Option<u64>>()?))
    };
    let all: BTreeMap<String, u64> = text.lines().filter_map(line).collect();
    all.into_iter().filter(|(name, _)| name != "lo").collect()
}

/// The number of subflows that this host has joined to MPTCP connections.
///
/// # Errors
/// When the kernel does not support MPTCP.
pub fn joined_subflows() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/self/net/netstat")?;
    counter(&text, "MPTcpExt:", "MPJoinSynAckRx").context("the kernel has no MPTCP counters")
}

/// Finds a counter in a pair of lines, the first with names and the second with values.
fn counter(text: &str, kind: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(kind));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut all = names.split_whitespace().zip(values.split_whitespace());
    all.find(|(found, _)| *found == name)?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_and_mptcp_counters_are_parsed() {
        let text = "Inter-| Receive |\n face |bytes packets|\n    lo: 7 1 0 0 0 0 0 0 1\n  wan0: 12 2 0 0 0 0 0 0 5 1\n wan1:9 1 0 0 0 0 0 0 4";
        let wanted = |a, b| BTreeMap::from([("wan0".to_owned(), a), ("wan1".to_owned(), b)]);
        assert_eq!(parse_devices(text, &[RECEIVED]), wanted(12, 9));
        assert_eq!(parse_devices(text, &[RECEIVED, SENT]), wanted(17, 13));
        let text = "TcpExt: A B\nTcpExt: 1 2\nMPTcpExt: X MPJoinSynAckRx\nMPTcpExt: 5 3\n";
        assert_eq!(counter(text, "MPTcpExt:", "MPJoinSynAckRx"), Some(3));
        assert_eq!(counter(text, "MPTcpExt:", "Y"), None);
    }
}
