//! Collecting and sending between real daemons on loopback; the files are compared.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

mod dry_run;
mod faults;
mod plans;
mod restarts;
mod running;
mod send;
mod several_sources;
mod tree;

// Each test crate uses another part of it.
#[allow(dead_code, reason = "shared with the tests of the mesh")]
#[path = "../mesh/host.rs"]
mod host;

use host::{Daemon, Host, events, named, text};
use running::Running;
use serde_json::Value;
use std::process::Output;
use tree::Tree;

/// Settings with which a node offers its directory `data` to all members, and accepts files into `inbox`.
fn offering(host: &Host) -> String {
    let (data, inbox) = (host.path("data"), host.path("inbox"));
    std::fs::create_dir_all(&data).unwrap();
    std::fs::create_dir_all(&inbox).unwrap();
    format!(
        "[relay]\nallow_to = [\"127.0.0.0/8\"]\nports = [\"1-65535\"]\n[files]\n\
         offer = [{{ path = {data:?}, to = [\"*\"] }}]\n\
         accept = [{{ path = {inbox:?}, from = [\"*\"] }}]\n"
    )
}

fn start(host: &Host) -> Daemon {
    host.start_under(&offering(host), None)
}

/// A mesh of the founder and relays with these names, all running and offering.
fn mesh(names: &[&str]) -> (Vec<Host>, Vec<Daemon>) {
    host::mesh(names, start)
}

/// The argument `NODE:PATH` of a path below the node's `data`.
fn at(node: &str, host: &Host, path: &str) -> String {
    format!("{node}:{}/{path}", host.path("data").display())
}

/// The last event, which must be the end.
fn ended(output: &Output) -> Value {
    let events = events(output);
    let last = events.last().unwrap_or_else(|| panic!("no event: {}", text(&output.stderr)));
    assert_eq!(last["event"], "ended", "{last}");
    last.clone()
}

#[test]
fn a_directory_is_collected_with_its_content_and_only_once() {
    let (hosts, _daemons) = mesh(&["nyc"]);
    let nyc = &hosts[1];
    let tree = Tree::make(&nyc.path("data/run"), 1);
    let lap = Host::joined(&hosts[0], "lap", &[], &["--no-daemon"]);
    let source = at("nyc", nyc, "run");
    let args = ["gather", &source, "--into", "here", "--json"];

    let output = lap.run(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    tree.assert_at(&lap.path("here/run"));
    let end = ended(&output);
    assert_eq!((&end["outcome"], &end["failed_files"]), (&"complete".into(), &0.into()));
    assert_eq!(end["bytes"], tree.bytes());
    let all = events(&output);
    let listed = named(&all, "listed");
    assert_eq!((&listed[0]["source"], &listed[0]["bytes"]), (&"nyc".into(), &tree.bytes().into()));
    let progress = named(&all, "progress");
    assert_eq!(progress.last().unwrap()["sources"][0]["done_bytes"], tree.bytes());

    // A second collection finds everything present.
    let end = ended(&lap.run(&args));
    assert_eq!((&end["bytes"], &end["files"]), (&0.into(), &0.into()), "{end}");
    assert_eq!(end["present_files"], tree.files());

    // A changed file is fetched again, and no other one.
    let changed = tree.change_one();
    let end = ended(&lap.run(&args));
    assert_eq!((&end["bytes"], &end["files"]), (&changed.into(), &1.into()), "{end}");
    tree.assert_at(&lap.path("here/run"));
}

#[test]
fn contents_of_directories_patterns_and_exclusions() {
    let (hosts, _daemons) = mesh(&[]);
    let fra = &hosts[0];
    let data = fra.path("data");
    std::fs::create_dir_all(data.join("logs/old")).unwrap();
    for name in ["logs/a.gz", "logs/b.gz", "logs/c.txt", "logs/old/d.gz"] {
        std::fs::write(data.join(name), name).unwrap();
    }
    let lap = Host::joined(fra, "lap", &[], &["--no-daemon"]);
    let there = |into: &str| {
        let mut found = tree::files(&lap.path(into));
        found.sort();
        found
    };
    lap.ok(&["gather", &at("fra", fra, "logs/"), "--into", "inside", "--exclude", "old"]);
    assert_eq!(there("inside"), ["a.gz", "b.gz", "c.txt"]);
    lap.ok(&["gather", &at("fra", fra, "logs/*.gz"), "--into", "matched"]);
    assert_eq!(there("matched"), ["a.gz", "b.gz"]);
    lap.ok(&["gather", &at("fra", fra, "logs"), "--into", "named", "--by-node"]);
    lap.ok(&["gather", &at("fra", fra, "/./logs//"), "--into", "plain", "--exclude", "old"]);
    assert_eq!(there("plain"), ["a.gz", "b.gz", "c.txt"]);
    let said = lap.fails(2, &["gather", &at("fra", fra, "logs"), "--into", "nyc:/x"]);
    assert!(said.contains("thalweg send"), "{said}");
    assert!(there("named").contains(&"fra/logs/old/d.gz".to_owned()), "{:?}", there("named"));
}
