//! Background traffic and capacity measurement in the collection network, as experiments use them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use serde_json::Value;
use std::{
    fs,
    process::{Child, Command, Stdio},
};
use support::{read_output, run_command, start_lab, wait_until};

const NETWORK: &str = r#"
    seed = 5
    congestion = "cubic"
    [generate]
    kind = "collection"
    pace = 8.0
    [[class]]
    name = "background"
    port = 9100
"#;

/// A running tool; killed when dropped.
struct RunningCollectionTool(Child);

impl RunningCollectionTool {
    fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for RunningCollectionTool {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// The bytes of each flow in the record so far, and whether each flow is a UDP stream.
fn record(text: &str) -> (Vec<u64>, Vec<bool>) {
    let mut lines = text.lines().map_while(|line| serde_json::from_str::<Value>(line).ok());
    let head = lines.next().unwrap();
    let streams: Vec<bool> =
        head["streams"].as_array().unwrap().iter().map(|s| s.as_bool().unwrap()).collect();
    let mut sums = vec![0; streams.len()];
    for line in lines {
        for (sum, bytes) in sums.iter_mut().zip(line["bytes"].as_array().unwrap()) {
            *sum += bytes.as_u64().unwrap();
        }
    }
    (sums, streams)
}

#[test]
fn every_background_flow_arrives_and_crosses_the_peering_points() {
    let Some(lab) = start_lab(NETWORK) else { return };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("background.jsonl");
    let flows = ["--seed", "5", "--pace", "8", "--flows", "16"];
    let file = out.to_str().unwrap();
    let receive = ["collection", "background-receive", "--out", file, "--every", "100ms"];
    let _receive = RunningCollectionTool::start(lab.tool("bg-a", &[&receive[..], &flows].concat()));
    wait_until("the record begins", || fs::metadata(&out).is_ok_and(|m| m.len() > 0));
    let send = ["collection", "background-send", "--for", "30s"];
    let _send = RunningCollectionTool::start(lab.tool("bg-b", &[&send[..], &flows].concat()));
    wait_until("every flow has brought something", || {
        let (sums, streams) = record(&fs::read_to_string(&out).unwrap());
        assert_eq!(streams.len(), 16);
        assert!(streams.contains(&true) && streams.contains(&false), "{streams:?}");
        sums.iter().all(|sum| *sum > 0)
    });
    let stats = lab.stats(true).unwrap();
    for peering in ["a0_b0.rev", "a1_b1.rev"] {
        let truth = stats.link(peering).unwrap();
        let class = truth.classes.iter().position(|c| c == "background").unwrap();
        assert!(truth.bins.iter().map(|bin| bin.bytes[class]).sum::<u64>() > 100_000, "{peering}");
    }
}

#[test]
fn capacities_in_an_idle_network_are_within_those_of_the_stub_links() {
    let Some(lab) = start_lab(NETWORK) else { return };
    let hosts = ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "d"];
    let serve = ["collection", "capacity-serve", "--for", "60s"];
    let _serving: Vec<RunningCollectionTool> =
        hosts.iter().map(|host| RunningCollectionTool::start(lab.tool(host, &serve))).collect();
    let listening = |host: &str| {
        let mut sockets = lab.command(host, "cat");
        let table = run_command(sockets.arg("/proc/self/net/tcp"));
        // Port 9200 in hexadecimal, in state LISTEN.
        String::from_utf8_lossy(&table.stdout).contains(":23F0 00000000:0000 0A")
    };
    wait_until("all listen", || hosts.iter().all(|host| listening(host)));
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("rates.csv");
    let measure = ["collection", "capacity", "--seed", "5", "--bytes", "100kB", "--times", "1"];
    let measure = [&measure[..], &["--longest", "5s", "--out", out.to_str().unwrap()]].concat();
    assert_eq!(read_output(&mut lab.tool("d", &measure)), "{\"pairs\":49}");
    let table = fs::read_to_string(out).unwrap();
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("from,to,bps"));
    for line in lines {
        let bps: f64 = line.rsplit(',').next().unwrap().parse().unwrap();
        assert!(bps > 1e6 && bps <= 20e6, "{line}");
    }
}
