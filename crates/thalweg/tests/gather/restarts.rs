//! After `kill -9` and a restart, nothing that was finished is transferred again.

use super::{Daemon, Host, Running, at, ended, events, mesh, named, start, text, tree};
use serde_json::Value;
use std::process::Command;

/// `nyc` has one file; its faster path is through `ber`.
struct World {
    hosts: Vec<Host>,
    daemons: Vec<Daemon>,
    lap: Host,
    source: String,
}

const RATES: &str = "from,to,rate,rtt\n\
    nyc,lap,160 kbit/s,80 ms\n\
    nyc,ber,16 Mbit/s,20 ms\n\
    ber,lap,16 Mbit/s,20 ms\n";

impl World {
    fn new(size: usize) -> Self {
        let (hosts, daemons) = mesh(&["nyc", "ber"]);
        std::fs::write(hosts[1].path("data/big"), tree::content(0, 0, size)).unwrap();
        let lap = Host::joined(&hosts[0], "lap", &[], &["--no-daemon"]);
        std::fs::write(lap.path("rates.csv"), RATES).unwrap();
        let source = at("nyc", &hosts[1], "big");
        Self { hosts, daemons, lap, source }
    }

    fn command(&self, method: &str, more: &[&str]) -> Command {
        let args = ["gather", &self.source, "--into", "d", "--json", "--rates", "rates.csv"];
        let method = ["--method", method, "--via", "ber"];
        self.lap.command(&[&args[..], &method, more].concat())
    }

    /// Kills it by SIGKILL.
    fn kill_ber(&mut self) {
        drop(self.daemons.pop());
    }

    fn start_ber(&mut self) {
        self.daemons.push(start(&self.hosts[2]));
    }

    /// Bytes that `nyc` has sent, including messages.
    fn sent(&self) -> u64 {
        self.hosts[1].json(&["status", "--json"])["files"]["sent_bytes"].as_u64().unwrap()
    }

    fn assert_complete(&self, size: usize) {
        assert!(std::fs::read(self.lap.path("d/big")).unwrap() == tree::content(0, 0, size));
        assert_eq!(tree::files(&self.lap.path("d")), ["big"], "nothing else is left");
    }
}

impl Running {
    fn until_a_transfer_fails(&mut self) {
        self.until(|event| event["event"] == "transfer" && event["why"].is_string());
    }

    /// Waits until `ber` has received this many bytes.
    fn until_ber_has(&mut self, bytes: u64) {
        let mut came = 0;
        self.until(|event| {
            if event["event"] == "transfer" && event["to"] == "ber" {
                came += event["bytes"].as_u64().unwrap();
            }
            came >= bytes
        });
    }
}

#[test]
fn a_restarted_timetable_uses_the_data_that_relays_hold() {
    let size = 6_000_000;
    let mut world = World::new(size);
    // By the timetable's clock, data goes on to `ber`, however slowly this host receives.
    let mut first = Running::new(world.command("path-delay", &["--bwlimit", "50k"]));
    first.until_ber_has(4_000_000);
    // By SIGKILL, and then the relay, too.
    first.kill();
    world.kill_ber();
    world.start_ber();
    let output = world.command("path-delay", &[]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    world.assert_complete(size);
    assert_eq!(ended(&output)["outcome"], "complete");
    let all = events(&output);
    let notes = named(&all, "note");
    let is_told = |note: &&Value| note["text"].as_str().unwrap().contains("of an earlier call");
    assert!(notes.iter().any(is_told), "{notes:?}");
    // Data in flight when they were killed, and data after the last checkpoint, is sent again.
    let (sent, unfinished) = (world.sent(), first.done + 1_000_000);
    assert!(sent < size as u64 + unfinished, "{sent} bytes were sent of {size}");
}

#[test]
fn data_held_by_a_restarted_relay_is_not_sent_again() {
    let size = 3_000_000;
    let mut world = World::new(size);
    // Two parcels come here at a time; the others wait at `ber`.
    let mut running = Running::new(world.command("best-path", &["--bwlimit", "300k"]));
    running.until_ber_has(2_400_000);
    world.kill_ber();
    // It is missed before it comes back.
    running.until_a_transfer_fails();
    world.start_ber();
    assert_eq!(running.code(), Some(0), "{}", running.last);
    let end = &running.last;
    world.assert_complete(size);
    let sent = world.sent();
    // Data that was in flight then is sent again.
    assert!(sent < size as u64 + 900_000, "{sent} bytes were sent of {size}; {end}");
    assert!(running.done == size as u64, "{end}");
}

/// A node confirms parts before they are in its journal; those are sent again.
#[test]
fn a_restarted_node_receives_everything_that_is_sent() {
    let (hosts, mut daemons) = mesh(&[]);
    let fra = &hosts[0];
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let content = tree::content(0, 0, 60_000_000);
    std::fs::write(lap.path("big"), &content).unwrap();
    let inbox = format!("fra:{}", fra.path("inbox").display());
    for round in 0..3 {
        let args = ["send", "big", &inbox, "--json", "--via", "none", "--bwlimit", "20M"];
        let mut running = Running::new(lap.command(&args));
        running.until_done(20_000_000);
        drop(daemons.pop());
        daemons.push(start(fra));
        assert_eq!(running.code(), Some(0), "round {round}: {}", running.last);
        let there = fra.path("inbox/big");
        assert!(std::fs::read(&there).unwrap() == content, "round {round}: other bytes");
        std::fs::remove_file(there).unwrap();
    }
}
