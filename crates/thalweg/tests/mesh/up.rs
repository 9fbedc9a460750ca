//! `thalweg up`: two hosts become a mesh with one command each.

use super::host::{Daemon, Host, text};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command},
    sync::mpsc,
};

/// A running `thalweg up --json`; killed when dropped.
struct Up {
    child: Child,
    events: mpsc::Receiver<Value>,
}

impl Up {
    /// Starts the command on `host`, which listens at its own port only.
    fn start(host: &Host, args: &[&str]) -> Self {
        let address = host.address();
        let own = ["up", "--json", "--address", &address, "--listen", &address];
        let mut child = host.command(&[&own, args].concat()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, events) = mpsc::sync_channel(100);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                println!("up: {line}");
                _ = sender.send(serde_json::from_str(&line).unwrap());
            }
        });
        std::thread::spawn(move || said.map_while(Result::ok).for_each(|l| println!("up: {l}")));
        Self { child, events }
    }

    /// The next event with this name.
    fn event(&self, name: &str) -> Value {
        let patience = super::host::PATIENCE;
        loop {
            let event = self.events.recv_timeout(patience).unwrap_or_else(|_| panic!("no {name}"));
            if event["event"] == name {
                return event;
            }
        }
    }

    /// Ends the node in order.
    fn end(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[test]
fn two_commands_make_a_mesh_of_two_hosts() {
    let (fra, nyc) = (Host::new(), Host::new());
    let fra_runs = Up::start(&fra, &["--name", "fra"]);
    assert_eq!(fra_runs.event("founded")["name"], "fra");
    fra_runs.event("ready");
    let reach = fra_runs.event("reachability");
    assert_eq!(reach["state"], "unknown", "{reach}");
    let next = fra_runs.event("next")["command"].as_str().unwrap().to_owned();

    let words: Vec<&str> = next.split(' ').collect();
    assert_eq!(words[..2], ["thalweg", "up"], "{next}");
    let nyc_runs = Up::start(&nyc, &[words[2], "--name", "nyc"]);
    assert_eq!(nyc_runs.event("joined")["name"], "nyc");
    let reach = nyc_runs.event("reachability");
    assert_eq!((&reach["state"], &reach["by"]), (&"reached".into(), &"fra".into()), "{reach}");
    assert_eq!(reach["address"], nyc.address());

    // The settings that were written are complete and change nothing.
    let file = nyc.path("config").join("thalweg/config.toml");
    let settings = fs::read_to_string(&file).unwrap();
    assert!(settings.contains("\n# max_connections = 4096\n"), "{settings}");
    assert!(nyc.ok(&["config", "check"]).contains("no errors"));

    // While it runs, the command checks and starts nothing; the founder is now reached, too.
    let said = fra.ok(&["up", "--json"]);
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["event"], "member", "{said}");
    assert_eq!((&lines[1]["state"], &lines[1]["by"]), (&"reached".into(), &"nyc".into()), "{said}");

    // It continues after a restart, with or without the token.
    nyc_runs.end();
    let nyc_runs = Up::start(&nyc, &[words[2]]);
    nyc_runs.event("member");
    assert_eq!(nyc_runs.event("reachability")["state"], "reached");
    nyc_runs.end();
    fra_runs.end();
}

#[test]
fn a_host_that_others_do_not_reach_is_told_so() {
    let fra = Host::founder();
    let _fra = fra.start();
    let nyc = Host::new();
    let token = fra.ok(&["mesh", "token", "--role", "relay"]);
    // Nobody listens at the address in the roster: the node listens elsewhere.
    let listed = nyc.address();
    nyc.ok(&["mesh", "join", token.trim(), "--name", "nyc", "--address", &listed]);
    let args = ["node", "--json", "--listen", "127.0.0.1:0"];
    let _nyc = Daemon::spawn(&mut nyc.command(&args));
    let output = nyc.run(&["up"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("not reachable: fra did not reach {listed}")), "{said}");
    assert!(said.contains("open this TCP port"), "{said}");
}

#[test]
fn a_member_is_not_taken_into_another_mesh() {
    let (fra, other) = (Host::founder(), Host::founder());
    let _other = other.start();
    let token = other.ok(&["mesh", "token"]);
    let said = fra.fails(1, &["up", token.trim()]);
    assert!(said.contains("in another mesh"), "{said}");
    let said = Host::new().fails(2, &["up", "--service", "--config", "x.toml"]);
    assert!(said.contains("cannot be used with"), "{said}");
}
