//! Limits of the node's process: descriptors, memory, processes, file sizes.

use thalweg_units::ByteSize;
use thalweg_wire::doctor::Finding;

/// Descriptors for everything but connections: standard streams, the runtime, files, name lookups.
const OTHER_DESCRIPTORS: u64 = 128;

/// Fewer descriptors than this stop a node that only downloads.
const FEW_DESCRIPTORS: u64 = 512;

/// A node with a bond, a cast and a drop box has up to this many bytes.
const MEMORY: u64 = 256 << 20;

/// Threads of a node: its workers, 64 for name lookups, and a process for each of a few transfers.
const THREADS: u64 = 128;

/// The limits of one process and of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitFacts {
    /// Whose limits these are: `the node (process 812)` or `this command`.
    pub of: String,
    /// The limit of open descriptors to which the process may raise its own; `None`: none.
    pub descriptors: Option<u64>,
    /// Open descriptors; `None`: unknown.
    pub open: Option<u64>,
    /// Connections that the settings allow at once (`relay.max_connections`); 0: it does not relay.
    pub connections: u64,
    /// The largest file that it may write, bytes; `None`: no limit.
    pub file_size: Option<u64>,
    /// Memory that the machine still has, bytes.
    pub available: Option<u64>,
    /// The memory limit of its control group and what is used of it, bytes.
    pub memory: Option<(u64, u64)>,
    /// The limit of processes of its control group and how many there are.
    pub processes: Option<(u64, u64)>,
    /// Entries in the table of tracked connections, and its size.
    pub tracked: Option<(u64, u64)>,
}

/// Whether the limits leave room.
pub fn check(facts: &LimitFacts) -> Vec<Finding> {
    let mut found = vec![descriptors(facts), memory(facts)];
    found.extend(facts.available.map(available));
    found.extend(facts.processes.map(|(most, now)| processes(facts, most, now)));
    found.extend(facts.file_size.map(|most| file_size(facts, most)));
    found.extend(facts.tracked.map(|(now, most)| tracked(now, most)));
    found
}

fn descriptors(facts: &LimitFacts) -> Finding {
    let Some(limit) = facts.descriptors else {
        return Finding::ok("descriptors.limit", format!("{}: no limit", facts.of));
    };
    let open = facts.open.map(|open| format!(", {open} are open")).unwrap_or_default();
    let seen = format!("{} may open {limit} descriptors{open}", facts.of);
    let remedy = "in the unit: LimitNOFILE=65536; in a shell: ulimit -n 65536";
    if facts.open.is_some_and(|open| open.saturating_mul(10) > limit.saturating_mul(9)) {
        return Finding::error("descriptors.used", seen)
            .means("new connections and files will soon be refused")
            .remedy(remedy);
    }
    if limit < FEW_DESCRIPTORS {
        return Finding::error("descriptors.few", seen)
            .means("a few transfers use them up; each connection takes two")
            .remedy(remedy);
    }
    let room = limit.saturating_sub(OTHER_DESCRIPTORS) / 2;
    match room < facts.connections {
        true => {
            let wanted = facts.connections;
            Finding::warning("descriptors.few", seen)
                .means(format!("room for {room} relayed connections of {wanted}; more will wait"))
                .remedy(remedy)
        }
        false => Finding::ok("descriptors.limit", seen),
    }
}

fn memory(facts: &LimitFacts) -> Finding {
    let Some((most, used)) = facts.memory else {
        return Finding::ok("memory.limit", format!("{}: no limit of a control group", facts.of));
    };
    let seen = format!(
        "{} is limited to {} of memory, {} are used",
        facts.of,
        ByteSize::from_bytes(most),
        ByteSize::from_bytes(used)
    );
    let remedy = "in the unit: MemoryMax=1G; in a container: --memory 1g";
    if used.saturating_mul(10) > most.saturating_mul(9) {
        let found = Finding::error("memory.limit", seen);
        return found.means("the kernel will kill it soon").remedy(remedy);
    }
    match most < MEMORY {
        true => Finding::warning("memory.limit", seen)
            .means("a bond or a large cast needs more; the kernel then kills the node")
            .remedy(remedy),
        false => Finding::ok("memory.limit", seen),
    }
}

fn available(left: u64) -> Finding {
    let seen = format!("the machine has {} of memory left", ByteSize::from_bytes(left));
    match left < MEMORY / 2 {
        true => Finding::warning("memory.low", seen)
            .means("the kernel may end a process for want of memory")
            .remedy("ps -eo rss,pid,comm --sort -rss | head"),
        false => Finding::ok("memory.available", seen),
    }
}

fn processes(facts: &LimitFacts, most: u64, now: u64) -> Finding {
    let seen = format!("{}: {now} processes and threads of at most {most}", facts.of);
    match most.saturating_sub(now) < THREADS {
        true => Finding::warning("processes.limit", seen)
            .means("transfers and name lookups will fail to start")
            .remedy("in the unit: TasksMax=4096; in a container: --pids-limit 4096"),
        false => Finding::ok("processes.limit", seen),
    }
}

fn file_size(facts: &LimitFacts, most: u64) -> Finding {
    let seen = format!("{} may write files of at most {}", facts.of, ByteSize::from_bytes(most));
    let found = Finding::warning("limits.file-size", seen);
    found.means("larger downloads end with an error").remedy("ulimit -f unlimited")
}

fn tracked(now: u64, most: u64) -> Finding {
    let seen = format!("{now} of {most} tracked connections (nf_conntrack)");
    match now.saturating_mul(10) > most.saturating_mul(9) {
        true => Finding::error("firewall.conntrack", seen)
            .means("the kernel drops new connections, of all programs")
            .remedy(format!("sysctl -w net.netfilter.nf_conntrack_max={}", most.saturating_mul(4))),
        false => Finding::ok("firewall.conntrack", seen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::doctor::Severity;

    fn ids(facts: &LimitFacts) -> Vec<(String, Severity)> {
        check(facts).into_iter().map(|found| (found.id, found.severity)).collect()
    }

    #[test]
    fn descriptors_must_do_for_the_relays_connections() {
        let of = |descriptors, connections, open| LimitFacts {
            descriptors: Some(descriptors),
            connections,
            open: Some(open),
            ..LimitFacts::default()
        };
        let first = |facts: &LimitFacts| ids(facts).remove(0);
        assert_eq!(first(&of(20_000, 4096, 40)), ("descriptors.limit".into(), Severity::Ok));
        assert_eq!(first(&of(4096, 4096, 40)), ("descriptors.few".into(), Severity::Warning));
        assert_eq!(first(&of(4096, 0, 40)), ("descriptors.limit".into(), Severity::Ok));
        assert_eq!(first(&of(256, 0, 40)), ("descriptors.few".into(), Severity::Error));
        assert_eq!(first(&of(20_000, 0, 19_000)), ("descriptors.used".into(), Severity::Error));
        assert_eq!(first(&LimitFacts::default()).1, Severity::Ok);
    }

    #[test]
    fn narrow_control_groups_and_tables_are_warnings() {
        let facts = LimitFacts {
            memory: Some((64 << 20, 20 << 20)),
            processes: Some((40, 12)),
            file_size: Some(1 << 20),
            available: Some(64 << 20),
            tracked: Some((262_000, 262_144)),
            ..LimitFacts::default()
        };
        let found = ids(&facts);
        let bad: Vec<_> = found.iter().filter(|(_, s)| *s >= Severity::Warning).collect();
        let bad: Vec<&str> = bad.iter().map(|(id, _)| &**id).collect();
        let expected = [
            "memory.limit",
            "memory.low",
            "processes.limit",
            "limits.file-size",
            "firewall.conntrack",
        ];
        assert_eq!(bad, expected);
        let roomy = LimitFacts {
            memory: Some((1 << 30, 20 << 20)),
            processes: Some((4096, 12)),
            available: Some(1 << 30),
            tracked: Some((0, 262_144)),
            ..LimitFacts::default()
        };
        assert!(ids(&roomy).iter().all(|(_, severity)| *severity == Severity::Ok));
    }
}
