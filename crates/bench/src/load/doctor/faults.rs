//! The faults: what is done to a host, and what `thalweg doctor` must call it.

/// Where a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Router,
    Lap,
    Fra,
    Nyc,
}

/// A part of a fault. Scripts of `sh` know `$STATE`, `$INBOX`, `$CONFIG`, `$RESOLV` and `$THALWEG` of their host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A script before the nodes start.
    Before(Place, &'static str),
    /// A script while they run.
    After(Place, &'static str),
    /// The member's node is not started.
    NoNode(&'static str),
    /// The member's node is killed.
    Kill(&'static str),
    /// The faulty host's node is started by this command.
    Wrapper(&'static str),
    /// This program runs there with these arguments.
    Beside(Place, &'static str),
    /// A variable of the command's environment.
    Environment(&'static str, &'static str),
    /// The member that the command is to ask.
    Peer(&'static str),
    /// The stored roster is replaced by one that has expired.
    ExpireRoster,
}

/// A fault of one host.
#[derive(Clone, Debug)]
pub struct Fault {
    pub name: &'static str,
    /// The ids of findings that name it; one suffices.
    pub expected: &'static [&'static str],
    pub steps: Vec<Step>,
}

impl Fault {
    /// No fault.
    pub fn none() -> Self {
        Self { name: "healthy", expected: &[], steps: Vec::new() }
    }

    /// Whether this is one of the steps.
    pub fn has(&self, step: &Step) -> bool {
        self.steps.contains(step)
    }

    /// The command that starts the node of a member.
    pub fn node_wrapper(&self, member: usize) -> Vec<String> {
        let of = |step: &Step| match step {
            Step::Wrapper(line) if member == 0 => {
                Some(vec!["sh".to_owned(), "-ec".to_owned(), (*line).to_owned(), "sh".to_owned()])
            }
            _ => None,
        };
        self.steps.iter().find_map(of).unwrap_or_default()
    }
}

use Place::{Fra, Lap, Nyc, Router};
use Step::{After, Before, Beside, Environment, ExpireRoster, Kill, NoNode, Peer, Wrapper};

/// All faults.
pub fn all() -> Vec<Fault> {
    [ports(), paths(), kernel(), disks(), state(), members(), network()].concat()
}

fn fault(name: &'static str, expected: &'static [&'static str], steps: &[Step]) -> Fault {
    Fault { name, expected, steps: steps.to_vec() }
}

fn ports() -> Vec<Fault> {
    let drop = "nft add table inet filter
        nft add chain inet filter input '{ type filter hook input priority 0; }'
        nft add rule inet filter input tcp dport 7373 drop";
    let policy = "nft add table inet filter
        nft add chain inet filter input '{ type filter hook input priority 0; policy drop; }'
        nft add rule inet filter input iif lo accept
        nft add rule inet filter input ct state established,related accept
        nft add rule inet filter input tcp dport 22 accept";
    let before = "nft add table ip filter
        nft add chain ip filter forward '{ type filter hook forward priority 0; }'
        nft add rule ip filter forward ip daddr 10.77.1.2 tcp dport 7373 drop";
    let elsewhere = "nft add table ip nat
        nft add chain ip nat in '{ type nat hook prerouting priority -100; }'
        nft add rule ip nat in ip daddr 10.77.1.2 tcp dport 7373 dnat to 10.77.3.2:7373";
    let program = "nft add table ip nat
        nft add chain ip nat in '{ type nat hook prerouting priority -100; }'
        nft add rule ip nat in ip daddr 10.77.1.2 tcp dport 7373 dnat to 10.77.3.2:9000";
    let moved = "ip addr del 10.77.1.2/24 dev eth0; ip addr add 10.77.1.7/24 dev eth0
        ip route replace default via 10.77.1.1";
    let serve = "load server --listen 0.0.0.0:9000";
    let take = "load server --listen 0.0.0.0:7373";
    let listen = "sed -i '1i listen = [\"127.0.0.1:7373\"]' $CONFIG";
    vec![
        fault("port-dropped", &["port.firewall"], &[After(Lap, drop)]),
        fault("port-dropped-by-policy", &["port.firewall"], &[After(Lap, policy)]),
        fault("port-dropped-on-the-way", &["port.closed"], &[After(Router, before)]),
        fault("port-forwarded-elsewhere", &["port.other-host"], &[After(Router, elsewhere)]),
        fault(
            "port-of-another-program",
            &["port.other-program"],
            &[Beside(Nyc, serve), After(Router, program)],
        ),
        fault("address-changed", &["port.closed"], &[Before(Lap, moved)]),
        fault("loopback-only", &["port.loopback-only"], &[Before(Lap, listen)]),
        fault("port-taken", &["port.in-use"], &[NoNode("lap"), Beside(Lap, take)]),
        fault("node-stopped", &["node.stopped"], &[NoNode("lap")]),
    ]
}

fn paths() -> Vec<Fault> {
    let hole = "for to in lap fra nyc; do ip link set to-$to mtu 1300; done
        nft add table ip filter
        nft add chain ip filter out '{ type filter hook output priority 0; }'
        nft add rule ip filter out icmp type destination-unreachable drop";
    let small = "ip link set to-fra mtu 1400; ip link set to-nyc mtu 1400";
    let loss = "nft add table ip filter
        nft add chain ip filter forward '{ type filter hook forward priority 0; }'
        nft add rule ip filter forward numgen random mod 100 '<' 15 drop";
    let symmetric = "ip addr add 10.77.9.9/32 dev lo
        nft add table ip nat
        nft add chain ip nat out '{ type nat hook postrouting priority 100; }'
        nft add rule ip nat out ip saddr 10.77.1.0/24 ip protocol tcp snat to 10.77.9.9:20000-60000 fully-random";
    let translated = "ip addr add 10.77.9.9/32 dev lo
        nft add table ip nat
        nft add chain ip nat out '{ type nat hook postrouting priority 100; }'
        nft add rule ip nat out ip saddr 10.77.1.0/24 snat to 10.77.9.9";
    vec![
        fault("mtu-black-hole", &["mtu.black-hole"], &[Before(Router, hole)]),
        fault("mtu-small", &["mtu.small"], &[Before(Router, small)]),
        fault("lossy-link", &["path.loss"], &[After(Router, loss)]),
        fault("nat-symmetric", &["nat.symmetric"], &[Before(Router, symmetric)]),
        fault("nat-constant", &["nat.translated"], &[Before(Router, translated)]),
    ]
}

fn kernel() -> Vec<Fault> {
    let rmem = "sysctl -qw net.ipv4.tcp_rmem='4096 8192 16384'";
    let wmem = "sysctl -qw net.ipv4.tcp_wmem='4096 8192 16384'";
    let scaling = "sysctl -qw net.ipv4.tcp_window_scaling=0";
    let reno = "sysctl -qw net.ipv4.tcp_congestion_control=reno";
    let few = "ulimit -n 200; exec \"$@\"";
    let memory = "own=/sys/fs/cgroup/memory$(sed -n 's/^.*:memory://p' /proc/self/cgroup)/$GROUP
        mkdir $own; echo 134217728 > $own/memory.limit_in_bytes; echo $$ > $own/cgroup.procs; exec \"$@\"";
    let tasks = "own=/sys/fs/cgroup/pids$(sed -n 's/^.*:pids://p' /proc/self/cgroup)/$GROUP
        mkdir $own; echo 100 > $own/pids.max; echo $$ > $own/cgroup.procs; exec \"$@\"";
    vec![
        fault("receive-buffer", &["tcp.receive-buffer"], &[Before(Lap, rmem)]),
        fault("send-buffer", &["tcp.send-buffer"], &[Before(Lap, wmem)]),
        fault("no-window-scaling", &["tcp.window-scaling"], &[Before(Lap, scaling)]),
        fault("old-congestion-control", &["tcp.congestion"], &[Before(Lap, reno)]),
        fault("few-descriptors", &["descriptors.few"], &[Wrapper(few)]),
        fault("memory-limit", &["memory.limit"], &[Wrapper(memory)]),
        fault("process-limit", &["processes.limit"], &[Wrapper(tasks)]),
    ]
}

fn disks() -> Vec<Fault> {
    let full = "cp -a $STATE $STATE.copy; mount -t tmpfs -o size=6m,mode=700 tmpfs $STATE
        cp -aT $STATE.copy $STATE";
    let fill = "dd if=/dev/zero of=$STATE/filler bs=64k 2>/dev/null || true";
    let read_only = "mount --bind $STATE $STATE; mount -o remount,bind,ro $STATE";
    let inodes = "mount -t tmpfs -o nr_inodes=6 tmpfs $INBOX; touch $INBOX/a $INBOX/b $INBOX/c";
    vec![
        fault("disk-full", &["disk.full"], &[Before(Lap, full), After(Lap, fill)]),
        fault("disk-read-only", &["disk.read-only"], &[After(Lap, read_only)]),
        fault("inbox-without-inodes", &["disk.inodes"], &[After(Lap, inodes)]),
        fault("inbox-absent", &["disk.absent"], &[After(Lap, "rmdir $INBOX")]),
    ]
}

fn state() -> Vec<Fault> {
    let key = "echo nonsense > $STATE/client.key";
    let roster =
        "head -c 100 $STATE/roster > $STATE/r; mv $STATE/r $STATE/roster; chmod 600 $STATE/roster";
    let settings = "printf '[relay]\\nidle = \"5\"\\nidel = \"1 s\"\\n' > $CONFIG";
    vec![
        fault("state-open-to-others", &["state.rights"], &[After(Lap, "chmod 755 $STATE")]),
        fault("state-of-another-user", &["state.owner"], &[After(Lap, "chown 65534 $STATE")]),
        fault(
            "key-open-to-others",
            &["state.key-rights"],
            &[After(Lap, "chmod 644 $STATE/client.key")],
        ),
        fault("key-damaged", &["state.key"], &[After(Lap, key)]),
        fault(
            "mesh-file-damaged",
            &["state.damaged"],
            &[After(Lap, "echo '{' > $STATE/mesh.json")],
        ),
        fault("settings-damaged", &["settings.problem"], &[After(Lap, settings)]),
        fault("roster-damaged", &["roster.damaged"], &[NoNode("lap"), Before(Lap, roster)]),
        fault("roster-expired", &["roster.expired"], &[NoNode("lap"), ExpireRoster]),
    ]
}

fn members() -> Vec<Fault> {
    let ahead = "load doctor peer --state $STATE --listen 0.0.0.0:7373 --ahead 300s";
    let version = "load doctor peer --state $STATE --listen 0.0.0.0:7373 --says 9.9.9";
    vec![
        fault("oracle-stopped", &["oracle.unreachable"], &[Kill("fra")]),
        fault(
            "membership-revoked",
            &["membership.revoked"],
            &[After(Fra, "$THALWEG mesh revoke lap >/dev/null")],
        ),
        fault("clock-differs", &["clock.offset"], &[NoNode("nyc"), Beside(Nyc, ahead)]),
        fault("version-differs", &["version.differs"], &[NoNode("nyc"), Beside(Nyc, version)]),
        fault("peer-stopped", &["peer.unreachable"], &[Kill("nyc"), Peer("nyc")]),
    ]
}

fn network() -> Vec<Fault> {
    let no_default = "ip route del default; ip route add 10.77.0.0/16 via 10.77.1.1";
    let second = "ip link add lte0 type veth peer name lte1; ip addr add 10.99.0.1/24 dev lte0";
    let ipv6 = "ip -6 addr add 2001:db8:1::5/64 dev eth0 nodad";
    let names = "echo nameserver 10.77.1.77 > $RESOLV";
    vec![
        fault("interface-down", &["interface.left-out"], &[Before(Lap, second)]),
        fault("no-network", &["interface.none"], &[After(Lap, "ip link set eth0 down")]),
        fault("no-default-route", &["route.none"], &[Before(Lap, no_default)]),
        fault("ipv6-without-route", &["ipv6.no-route"], &[Before(Lap, ipv6)]),
        fault("names-unanswered", &["dns.broken"], &[After(Lap, names)]),
        fault(
            "certificates-absent",
            &["certificates.unusable"],
            &[Environment("SSL_CERT_FILE", "/nonexistent/ca.pem")],
        ),
        fault(
            "proxy-in-environment",
            &["proxy.environment"],
            &[Environment("https_proxy", "http://proxy.example:3128")],
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::{super::testbed::MEMBERS, *};
    use std::collections::BTreeSet;

    #[test]
    fn there_are_forty_faults_and_more_with_names_of_their_own() {
        let all = all();
        let names: BTreeSet<&str> = all.iter().map(|fault| fault.name).collect();
        assert!(all.len() >= 40 && names.len() == all.len(), "{}", all.len());
        assert!(all.iter().all(|fault| !fault.expected.is_empty() && !fault.steps.is_empty()));
        let known = |name: &&str| MEMBERS.contains(name);
        let killed = all.iter().flat_map(|fault| &fault.steps).filter_map(|step| match step {
            NoNode(name) | Kill(name) | Peer(name) => Some(*name),
            _ => None,
        });
        assert!({ killed }.all(|name| known(&name)));
    }
}
