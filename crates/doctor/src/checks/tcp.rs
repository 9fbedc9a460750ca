//! Settings of the kernel's TCP that bound what a connection carries.

use std::time::Duration;
use thalweg_units::{ByteSize, Rate};
use thalweg_wire::doctor::Finding;

/// The largest buffer, bytes, of kernels since 2.6.17 is at least this; less was set by hand.
const SMALL: u64 = 1 << 20;

/// A far path, for the rate that a buffer allows.
const FAR: Duration = Duration::from_millis(100);

/// Fewer local ports than this run out with one busy relay.
const FEW_PORTS: u32 = 1000;

/// A shorter queue drops connections in a burst.
const SHORT_BACKLOG: u64 = 64;

/// The kernel's settings, and the paths that are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TcpFacts {
    /// `net.ipv4.tcp_rmem`: least, default and largest receive buffer, bytes.
    pub receive: Option<[u64; 3]>,
    /// `net.ipv4.tcp_wmem`: of send buffers.
    pub send: Option<[u64; 3]>,
    /// `net.ipv4.tcp_window_scaling`.
    pub window_scaling: Option<bool>,
    /// `net.ipv4.tcp_sack`.
    pub selective_acknowledgement: Option<bool>,
    /// `net.ipv4.tcp_congestion_control`, and the available ones.
    pub congestion: Option<(String, Vec<String>)>,
    /// `net.ipv4.ip_local_port_range`, both ends included.
    pub ports: Option<(u16, u16)>,
    /// `net.core.somaxconn`.
    pub backlog: Option<u64>,
    /// Paths whose rate and round trip are known.
    pub paths: Vec<KnownPath>,
}

/// A path that has been measured or used.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownPath {
    /// Its other end.
    pub to: String,
    pub rate: Rate,
    pub rtt: Duration,
}

impl KnownPath {
    /// Bandwidth × delay, bytes.
    fn bytes(&self) -> u64 {
        (self.rate.as_bps() as f64 / 8.0 * self.rtt.as_secs_f64()) as u64
    }
}

/// Whether one connection can fill the paths.
pub fn check(facts: &TcpFacts) -> Vec<Finding> {
    let receive = facts.receive.map(|all| buffer(facts, "receive", "rmem", all));
    let send = facts.send.map(|all| buffer(facts, "send", "wmem", all));
    let missing = || Finding::unchecked("tcp.settings", "/proc/sys/net/ipv4 cannot be read");
    let mut found = vec![receive.unwrap_or_else(missing)];
    found.extend(send);
    found.extend(facts.window_scaling.and_then(scaling));
    found.extend(facts.selective_acknowledgement.and_then(acknowledgement));
    found.extend(facts.congestion.as_ref().map(|(used, known)| congestion(used, known)));
    found.extend(facts.ports.and_then(|(from, to)| ports(from, to)));
    found.extend(facts.backlog.and_then(backlog));
    found
}

/// Half of a buffer holds data, the rest is the kernel's own (tcp(7), `tcp_adv_win_scale`).
fn buffer(facts: &TcpFacts, what: &str, key: &str, [_, _, largest]: [u64; 3]) -> Finding {
    let window = largest / 2;
    let id = format!("tcp.{what}-buffer");
    let seen =
        format!("net.ipv4.tcp_{key}: {what} buffers of at most {}", ByteSize::from_bytes(largest));
    let widest = facts.paths.iter().max_by_key(|path| path.bytes());
    let remedy = |bytes: u64| {
        let wanted = bytes.next_power_of_two().max(8 << 20);
        let start = if key == "rmem" { "4096 131072" } else { "4096 16384" };
        format!("sysctl -w net.ipv4.tcp_{key}=\"{start} {wanted}\" # and in /etc/sysctl.d/")
    };
    if let Some(path) = widest.filter(|path| path.bytes() > window) {
        let (needs, most) = (path.bytes(), rate(window, path.rtt));
        let seen = format!(
            "{seen}; the path to {} needs {} ({} × {} ms)",
            path.to,
            ByteSize::from_bytes(needs),
            path.rate,
            path.rtt.as_millis()
        );
        let means = format!("one connection to {} carries at most {most}", path.to);
        return Finding::warning(&id, seen).means(means).remedy(remedy(2 * needs));
    }
    if largest < SMALL {
        let means =
            format!("one connection carries at most {} at 100 ms round trip", rate(window, FAR));
        return Finding::warning(&id, seen).means(means).remedy(remedy(0));
    }
    Finding::ok(&id, format!("{seen}: {} at 100 ms round trip", rate(window, FAR)))
}

fn rate(window: u64, rtt: Duration) -> Rate {
    let bps = window as f64 * 8.0 / rtt.as_secs_f64().max(1e-6);
    // Three digits are enough.
    let step = 10f64.powi((bps.max(1.0).log10() as i32 - 2).max(0));
    Rate::from_bps(((bps / step).round() * step) as u64)
}

fn scaling(is_on: bool) -> Option<Finding> {
    let found = Finding::warning("tcp.window-scaling", "net.ipv4.tcp_window_scaling = 0");
    let means =
        "windows end at 64 KiB: one connection carries at most 5.24 Mbit/s at 100 ms round trip";
    (!is_on).then(|| found.means(means).remedy("sysctl -w net.ipv4.tcp_window_scaling=1"))
}

fn acknowledgement(is_on: bool) -> Option<Finding> {
    let found = Finding::warning("tcp.sack", "net.ipv4.tcp_sack = 0");
    let means = "each loss costs a round trip and more";
    (!is_on).then(|| found.means(means).remedy("sysctl -w net.ipv4.tcp_sack=1"))
}

fn congestion(used: &str, known: &[String]) -> Finding {
    let seen = format!("{used} is used, available: {}", known.join(", "));
    if used.starts_with("bbr") || used == "cubic" {
        return Finding::ok("tcp.congestion", seen);
    }
    let better = ["bbr", "cubic"].into_iter().find(|name| known.iter().any(|k| k == name));
    let remedy = match better {
        Some(name) => format!("sysctl -w net.ipv4.tcp_congestion_control={name}"),
        None => "modprobe tcp_bbr; sysctl -w net.ipv4.tcp_congestion_control=bbr".to_owned(),
    };
    Finding::warning("tcp.congestion", seen)
        .means("it recovers slowly from losses on long or fast paths")
        .remedy(remedy)
}

fn ports(from: u16, to: u16) -> Option<Finding> {
    let number = u32::from(to.saturating_sub(from)) + 1;
    let seen = format!("net.ipv4.ip_local_port_range: {number} ports, {from} to {to}");
    let found = Finding::warning("tcp.ports", seen);
    let means = "connections to one destination fail once these are used up";
    let remedy = "sysctl -w net.ipv4.ip_local_port_range=\"32768 60999\"";
    (number < FEW_PORTS).then(|| found.means(means).remedy(remedy))
}

fn backlog(most: u64) -> Option<Finding> {
    let found = Finding::warning("tcp.backlog", format!("net.core.somaxconn = {most}"));
    let means = "connections that arrive in a burst are dropped and repeated a second later";
    (most < SHORT_BACKLOG).then(|| found.means(means).remedy("sysctl -w net.core.somaxconn=4096"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::doctor::Severity;

    fn facts(largest: u64) -> TcpFacts {
        TcpFacts {
            receive: Some([4096, 131_072, largest]),
            send: Some([4096, 16_384, 4 << 20]),
            window_scaling: Some(true),
            selective_acknowledgement: Some(true),
            congestion: Some(("bbr".to_owned(), vec!["reno".to_owned(), "bbr".to_owned()])),
            ports: Some((32_768, 60_999)),
            backlog: Some(4096),
            paths: Vec::new(),
        }
    }

    fn bad(facts: &TcpFacts) -> Vec<String> {
        let found = check(facts);
        found.into_iter().filter(|f| f.severity != Severity::Ok).map(|f| f.id).collect()
    }

    #[test]
    fn buffers_are_compared_with_bandwidth_times_delay_of_known_paths() {
        let mut facts = facts(6 << 20);
        assert_eq!(bad(&facts), Vec::<String>::new());
        let rtt = Duration::from_millis(80);
        facts.paths.push(KnownPath {
            to: "fra".to_owned(),
            rate: Rate::from_bps(1_000_000_000),
            rtt,
        });
        assert_eq!(bad(&facts), ["tcp.receive-buffer", "tcp.send-buffer"]);
        let found = check(&facts).remove(0);
        assert!(found.seen.contains("the path to fra needs 10 MB"), "{}", found.seen);
        assert!(found.means.contains("315 Mbit/s"), "{}", found.means);
        assert!(found.remedy.contains("33554432"), "{}", found.remedy);
    }

    #[test]
    fn settings_that_slow_every_connection_are_found() {
        assert_eq!(bad(&facts(16_384)), ["tcp.receive-buffer"]);
        let slow = TcpFacts {
            window_scaling: Some(false),
            selective_acknowledgement: Some(false),
            congestion: Some(("reno".to_owned(), vec!["reno".to_owned(), "cubic".to_owned()])),
            ports: Some((40_000, 40_009)),
            backlog: Some(4),
            ..facts(6 << 20)
        };
        let expected =
            ["tcp.window-scaling", "tcp.sack", "tcp.congestion", "tcp.ports", "tcp.backlog"];
        assert_eq!(bad(&slow), expected);
        assert_eq!(check(&TcpFacts::default())[0].severity, Severity::Unchecked);
    }
}
