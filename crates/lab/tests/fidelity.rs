//! Packets experience what the topology says, and the link's record and programs in the hosts count the same.
//! `thalweg-bench lab probe` measures the accuracy; these tests do not depend on timing.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStdout, Stdio},
};
use support::{read_output, start_lab};
use thalweg_lab::{client::Lab, emu::LinkTruth, topology::LinkChange};

/// A topology of hosts a and b with separate links `there` and `back`.
fn line(there: &str) -> String {
    format!(
        "[host.a]\n[host.b]\n[link.there]\nsimplex = true\ndelay = \"1 ms\"\n{there}\n\
         [link.back]\nsimplex = true\ndelay = \"1 ms\"\n\
         [[path]]\nfrom = \"a\"\nto = \"b\"\nlinks = [\"there\"]\nback = [\"back\"]\n"
    )
}

/// A server tool in a host; killed when dropped.
struct ToolInHost {
    child: Child,
    port: String,
    /// Kept open, so that later output of the tool does not fail.
    _stdout: BufReader<ChildStdout>,
}

impl ToolInHost {
    fn start(lab: &Lab, host: &str, tool: &str) -> Self {
        let mut command = lab.tool(host, &[tool, "--listen", "[::]:0"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut ready).unwrap();
        let ready: Value = serde_json::from_str(&ready).unwrap();
        let address = ready["ready"]["address"].as_str().unwrap();
        let port = address.rsplit_once(':').unwrap().1.to_owned();
        Self { child, port, _stdout: stdout }
    }
}

impl Drop for ToolInHost {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The report of `tool ARGS --to b:PORT` in host a.
fn report(lab: &Lab, server: &ToolInHost, args: &[&str]) -> Value {
    let to = format!("{}:{}", lab.address("b"), server.port);
    serde_json::from_str(&read_output(&mut lab.tool("a", &[args, &["--to", &to]].concat())))
        .unwrap()
}

const COUNT: u64 = 200;

/// `COUNT` pings of 1000 B from a to b, a millisecond apart.
fn ping(lab: &Lab, echo: &ToolInHost) -> Value {
    ping_every(lab, echo, "1ms")
}

fn ping_every(lab: &Lab, echo: &ToolInHost, interval: &str) -> Value {
    let args = ["udp-ping", "--count", "200", "--size", "1000", "--timeout", "2s"];
    report(lab, echo, &[&args[..], &["--interval", interval]].concat())
}

fn truth(lab: &Lab, link: &str) -> LinkTruth {
    lab.stats(false).unwrap().link(link).unwrap().clone()
}

/// A number in a tool's report.
fn count(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("no {key} in {report}"))
}

#[test]
fn packets_flow_with_the_delay_and_are_all_counted() {
    let Some(lab) = start_lab(&line("rate = \"100 Mbit/s\"")) else { return };
    let echo = ToolInHost::start(&lab, "b", "udp-echo");
    let pings = ping(&lab, &echo);
    assert_eq!((count(&pings, "lost"), count(&pings, "duplicated")), (0, 0));
    // No packet arrives early: 2 · 1 ms, and 1000 B at 100 Mbit/s.
    assert!(pings["rtt"]["min"].as_f64().unwrap() >= 2.08, "{pings}");
    let (there, back) = (truth(&lab, "there"), truth(&lab, "back"));
    assert_eq!((there.packets, back.packets), (COUNT, COUNT));
    assert_eq!((there.bytes, back.bytes), (COUNT * 1000, COUNT * 1000));
    assert_eq!(there.drops() + back.drops(), 0);
}

#[test]
fn both_families_take_the_same_path() {
    let Some(lab) = start_lab(&line("rate = \"100 Mbit/s\"")) else { return };
    let echo = ToolInHost::start(&lab, "b", "udp-echo");
    let b = lab.resolved().hosts.iter().find(|h| h.name == "b").unwrap().interfaces[0];
    let to = format!("[{}]:{}", lab.resolved().interfaces[b].v6, echo.port);
    let args = ["udp-ping", "--to", &to, "--count", "20", "--interval", "1ms"];
    let pings: Value = serde_json::from_str(&read_output(&mut lab.tool("a", &args))).unwrap();
    assert_eq!(count(&pings, "lost"), 0);
    assert!(truth(&lab, "there").packets >= 20);
}

#[test]
fn every_random_loss_is_recorded() {
    let Some(lab) = start_lab(&line("loss = \"30 %\"")) else { return };
    let echo = ToolInHost::start(&lab, "b", "udp-echo");
    let pings = ping(&lab, &echo);
    let there = truth(&lab, "there");
    assert_eq!(count(&pings, "lost"), there.random_losses);
    // 200 trials of 30 %: 60 ± 5·6.5; the topology sets the seed, so the result is always the same.
    assert!((28..=92).contains(&there.random_losses), "{} of 200", there.random_losses);
    assert_eq!((there.packets, truth(&lab, "back").drops()), (COUNT, 0));
}

#[test]
fn a_gilbert_chain_that_stays_in_the_bad_state_loses_all_packets() {
    let loss = "loss = { good_to_bad = \"100 %\", bad_to_good = \"0.001 %\", in_bad = \"100 %\" }";
    let Some(lab) = start_lab(&line(loss)) else { return };
    let echo = ToolInHost::start(&lab, "b", "udp-echo");
    let lost = count(&ping(&lab, &echo), "lost");
    assert_eq!(lost, truth(&lab, "there").random_losses);
    assert!(lost >= COUNT - 1, "{lost} of {COUNT}");
}

#[test]
fn a_full_queue_drops_and_nothing_else_does() {
    let Some(lab) = start_lab(&line("rate = \"1 Mbit/s\"\nqueue = \"10 kB\"")) else { return };
    let echo = ToolInHost::start(&lab, "b", "udp-echo");
    // 200 packets of 1000 B at once into 10 kB.
    let pings = ping_every(&lab, &echo, "1us");
    let there = truth(&lab, "there");
    assert_eq!(count(&pings, "lost"), there.queue_drops);
    assert!(there.queue_drops > 0 && there.packets >= 10, "{there:?}");
    assert_eq!((there.packets + there.queue_drops, there.random_losses), (COUNT, 0));
    assert!(there.queue_max_bytes <= 10_000, "{} in 10 kB", there.queue_max_bytes);
    assert!(!there.episodes.is_empty());
}

#[test]
fn a_link_that_is_down_drops_and_carries_again_when_up() {
    let Some(lab) = start_lab(&line("")) else { return };
    let echo = ToolInHost::start(&lab, "b", "udp-echo");
    lab.set("there", &LinkChange::up(false)).unwrap();
    assert_eq!(count(&ping(&lab, &echo), "lost"), COUNT);
    assert_eq!(truth(&lab, "there").down_drops, COUNT);
    lab.set("there", &LinkChange::up(true)).unwrap();
    assert_eq!(count(&ping(&lab, &echo), "lost"), 0);
    assert_eq!((truth(&lab, "there").packets, truth(&lab, "back").packets), (COUNT, COUNT));
}

#[test]
fn every_packet_arrives_twice_if_all_are_duplicated() {
    let Some(lab) = start_lab(&line("duplicate = \"100 %\"")) else { return };
    let echo = ToolInHost::start(&lab, "b", "udp-echo");
    let pings = ping(&lab, &echo);
    // `udp-ping` ends at its last answer, before the duplicate of that answer arrives. The host then sends an ICMP
    // error, because the port is closed.
    let duplicated = truth(&lab, "there").duplicated;
    assert!((COUNT..=COUNT + 1).contains(&duplicated), "{duplicated}");
    assert_eq!(truth(&lab, "back").packets, 2 * COUNT);
    assert!(count(&pings, "duplicated") >= COUNT - 1, "{pings}");
}

#[test]
fn every_corrupted_packet_is_dropped_by_the_receiver() {
    let Some(lab) = start_lab(&line("corrupt = \"100 %\"")) else { return };
    let echo = ToolInHost::start(&lab, "b", "udp-echo");
    // The 16-bit checksum of UDP detects every single flipped bit (RFC 1071 §2).
    assert_eq!(count(&ping(&lab, &echo), "lost"), COUNT);
    assert_eq!(truth(&lab, "there").corrupted, COUNT);
}

#[test]
fn packets_held_back_are_overtaken() {
    let Some(lab) = start_lab(&line("reorder = { probability = \"10 %\", by = \"20 ms\" }")) else {
        return;
    };
    let sink = ToolInHost::start(&lab, "b", "train-sink");
    let blast = ["udp-blast", "--rate", "8 Mbit/s", "--size", "500", "--for", "250ms"];
    let report = report(&lab, &sink, &blast);
    assert_eq!((count(&report, "sent"), count(&report, "lost")), (500, 0));
    // 500 trials of 10 %: 50 ± 5·6.7.
    assert!((16..=84).contains(&count(&report, "reordered")), "{report}");
    assert!(truth(&lab, "there").reordered >= count(&report, "reordered"));
}

#[test]
fn tcp_goodput_matches_the_bytes_that_the_link_carried() {
    let Some(lab) = start_lab(&line("rate = \"20 Mbit/s\"")) else { return };
    let sink = ToolInHost::start(&lab, "b", "tcp-sink");
    let source = ["tcp-source", "--for", "1s", "--congestion", "reno"];
    let report = report(&lab, &sink, &source);
    let flow = &report["flows"][0];
    assert_eq!(flow["congestion_control"], "reno");
    let (received, there) = (count(flow, "received_bytes"), truth(&lab, "there"));
    assert!(received > 100_000, "{report}");
    // Each packet of 1500 bytes carries 1448 bytes of payload.
    assert!(there.bytes as f64 >= received as f64 * 1500.0 / 1448.0, "{there:?}");
    // The goodput does not exceed the rate of the link.
    assert!(report["goodput"]["value"].as_f64().unwrap() <= 20e6, "{report}");
}
