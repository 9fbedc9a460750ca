//! Casts between real daemons on loopback; the received files are compared.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

// Each test crate uses another part of it.
#[allow(dead_code, reason = "shared with the tests of the mesh")]
#[path = "../mesh/host.rs"]
mod host;

mod faults;
mod restarts;

use host::{Daemon, Host, events, named, text};
use serde_json::json;
use std::process::Stdio;

/// Starts a daemon that forwards by rings and stores nothing.
fn start_relay(host: &Host) -> Daemon {
    host.start_under("[cast]\nrelay = true\n", None)
}

/// Starts a daemon with an inbox for all members.
fn start(host: &Host) -> Daemon {
    let inbox = host.path("inbox");
    std::fs::create_dir_all(&inbox).unwrap();
    host.start_under(
        &format!(
            "[cast]\nkeep_free = \"0 B\"\ninbox = [{{ path = {inbox:?}, from = [\"*\"], \
             max_bytes = \"100 MB\" }}]\n"
        ),
        None,
    )
}

/// A mesh of the founder and members with these names, all running with inboxes.
fn mesh(names: &[&str]) -> (Vec<Host>, Vec<Daemon>) {
    host::mesh(names, start)
}

/// Content whose symbols all differ.
fn bytes(length: usize, seed: u8) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(seed);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

#[test]
fn a_file_reaches_all_receivers_once_and_is_recognised_later() {
    let (hosts, _daemons) = mesh(&["nyc", "ber"]);
    let lap = Host::joined(&hosts[0], "lap", &[], &["--no-daemon"]);
    let content = bytes(9_000_001, 1);
    std::fs::write(lap.path("image.iso"), &content).unwrap();

    let args = ["cast", "image.iso", "--to", "nyc, ber", "--json"];
    let output = lap.run(&args);
    assert!(output.status.success(), "{} {}", text(&output.stdout), text(&output.stderr));
    for host in &hosts[1..] {
        assert!(std::fs::read(host.path("inbox/image.iso")).unwrap() == content);
    }
    assert!(!hosts[0].path("inbox/image.iso").exists());
    let all = events(&output);
    let received = named(&all, "received");
    assert_eq!(received.len(), 2);
    for event in received {
        assert_eq!(event["already"], false, "{event}");
        let number = |key: &str| event[key].as_u64().unwrap();
        assert_eq!(number("received_bytes") - number("duplicate_bytes"), 9_000_001);
        assert!(number("duplicate_bytes") < 300_000, "{event}");
    }
    assert_eq!(all.last().unwrap()["outcome"], "complete");

    // A receiver that has the file is sent nothing.
    let output = lap.run(&args);
    assert!(output.status.success(), "{} {}", text(&output.stdout), text(&output.stderr));
    let all = events(&output);
    assert_eq!(all.last().unwrap()["served_bytes"], 0, "{all:?}");
    assert!(named(&all, "received").iter().all(|event| event["already"] == true), "{all:?}");
    let said = text(&lap.run(&args[..4]).stderr);
    assert!(said.contains("nyc: has it already\n") && !said.contains("bit/s"), "{said}");
    assert!(said.contains("all 2 have it already: 9 MB"), "{said}");

    let status = hosts[1].json(&["cast", "status", "--json"]);
    let cast = &status["casts"][0];
    assert_eq!(
        (&cast["state"], &cast["name"], &cast["from"]),
        (&"complete".into(), &"image.iso".into(), &"lap".into())
    );
    assert!(
        cast["job"]["created_unix_s"].is_u64() && cast["job"].get("created").is_none(),
        "{cast}"
    );
    assert!(hosts[1].ok(&["cast", "status"]).contains("image.iso"));
    let state = lap.state().display().to_string();
    let said = lap.ok(&["cast", "--state", &state, "status", "image.iso"]);
    assert!(said.contains("9 MB to ber, nyc: all have it"), "{said}");
    let said = lap.fails(1, &["cast", "status", "other.iso"]);
    assert!(said.contains("has the name or number `other.iso`"), "{said}");
}

#[test]
fn a_cast_by_rings_works_also_through_a_relay() {
    let (hosts, _daemons) = mesh(&["nyc", "ber"]);
    let relay = Host::relay(&hosts[0], "hub", &[]);
    let _relay = start_relay(&relay);
    let lap = Host::joined(&hosts[0], "lap", &[], &["--no-daemon"]);
    let content = bytes(9_000_001, 1);
    std::fs::write(lap.path("image"), &content).unwrap();
    std::fs::write(
        lap.path("rates.csv"),
        "from,to,rate\nlap,hub,90 Mbit/s\nhub,nyc,80 Mbit/s\nhub,ber,70 Mbit/s\n",
    )
    .unwrap();
    for (name, more) in [("chain", &[][..]), ("hub", &["--via", "hub", "--rates", "rates.csv"])] {
        let args = ["cast", "image", "--name", name, "--to", "nyc,ber", "--forward", "ring"];
        let args = [&args[..], &["--ring-bytes", "500 kB", "--json"], more].concat();
        let output = lap.run(&args);
        assert!(output.status.success(), "{} {}", text(&output.stdout), text(&output.stderr));
        for host in &hosts[1..] {
            assert!(std::fs::read(host.path(&format!("inbox/{name}"))).unwrap() == content);
        }
    }
    assert!(!relay.path("inbox").exists());
    let said = lap.fails(2, &["cast", "image", "--to", "nyc", "--forward", "rings"]);
    assert!(said.contains("'rings'") && said.contains("store or ring"), "{said}");
}

/// ber receives from nyc, and nyc from lap, because ber's sending rate is declared to be low.
const PLAN: &str = r#"
[[leg]]
from = "lap"
to = "nyc"
rate = "90 Mbit/s"
rtt = "20 ms"
loss = "0.05 %"
[[leg]]
from = "nyc"
to = "ber"
rate = "80 Mbit/s"
rtt = "20 ms"
loss = "0.1 %"
[[leg]]
from = "ber"
to = "nyc"
rate = "95 Mbit/s"
[[leg]]
from = "lap"
to = "ber"
rate = "5 Mbit/s"
[[host]]
name = "ber"
egress = "10 Mbit/s"
"#;

#[test]
fn the_plan_has_the_rates_of_the_formulas_and_respects_sending_rates() {
    let (hosts, _daemons) = mesh(&["nyc", "ber"]);
    let lap = Host::joined(&hosts[0], "lap", &[], &["--no-daemon"]);
    std::fs::write(lap.path("one"), bytes(100_000, 1)).unwrap();
    std::fs::write(lap.path("plan.toml"), PLAN).unwrap();
    let cast = ["cast", "one", "--to", "nyc,ber", "--rates", "plan.toml", "--parents", "1"];
    let planned = |more: &[&str]| {
        let output = lap.run(&[&cast[..], &["--json"], more].concat());
        assert!(output.status.success(), "{} {}", text(&output.stdout), text(&output.stderr));
        let all = events(&output);
        let receivers = named(&all, "planned")[0]["receivers"].clone();
        receivers.as_array().unwrap().clone()
    };
    // In alphabetical order: ber, nyc.
    let all = planned(&["--leaf-below", "25 Mbit/s"]);
    assert_eq!(all[0]["parents"], json!(["nyc", "lap"]));
    assert_eq!(all[1]["parents"], json!(["lap"]), "ber is a leaf: {all:?}");
    // The example of Fig. 6 (§V-B) with full segments.
    let mbps = |of: &serde_json::Value| (of.as_f64().unwrap() / 1e5).round() / 10.0;
    let predicted = &all[0]["predicted"];
    assert_eq!((mbps(&predicted["eq2_bps"]), mbps(&predicted["eq3_bps"])), (22.2, 9.0));
    assert_eq!(all[0]["expected_bps"], 80_000_000, "by measured rates");
    let status = lap.json(&["cast", "status", "--json"]);
    assert_eq!(status["sources"][0]["receivers"]["ber"]["predicted"], *predicted, "{status}");

    let all = planned(&["--egress", "nyc=6Mbit/s,lap=200 Mbit/s"]);
    assert_eq!(all[0]["expected_bps"], 6_000_000, "as much as nyc sends");
    std::fs::write(lap.path("plan.toml"), PLAN.replace("rtt = \"20 ms\"\n", "")).unwrap();
    let all = planned(&[]);
    assert!(all.iter().all(|one| one.get("predicted").is_none()), "{all:?}");
    assert_eq!(all[1]["parents"], json!(["lap", "ber"]));

    for (more, says) in [
        (&["--egress", "nyc"][..], "NODE=RATE"),
        (&["--egress", "nyc=0 bit/s"], "above 0"),
        (&["--egress", "nyc=fast"], "fast"),
        (&["--egress", "fra=1 Mbit/s"], "`fra` is neither source, receiver nor relay"),
        (&["--leaf-below", "0 bit/s"], "above 0"),
        (&["--leaf-below", "25"], "25"),
    ] {
        let said = lap.fails(2, &[&cast[..], more].concat());
        assert!(said.contains(says), "{more:?}: {said}");
    }
    std::fs::write(lap.path("plan.toml"), PLAN.replace("10 Mbit/s", "0 bit/s")).unwrap();
    let said = lap.fails(2, &cast);
    assert!(said.contains("[[host]] `ber`: a rate of 0"), "{said}");
}

#[test]
fn receivers_that_are_away_or_refuse_are_named_and_the_others_receive() {
    let (hosts, _daemons) = mesh(&["nyc"]);
    let ber = Host::relay(&hosts[0], "ber", &[]);
    let _closed = ber.start();
    let _away = Host::relay(&hosts[0], "par", &[]);
    let lap = Host::joined(&hosts[0], "lap", &[], &["--no-daemon"]);
    std::fs::create_dir_all(lap.path("set/a")).unwrap();
    std::fs::write(lap.path("set/a/one"), bytes(3_000_000, 1)).unwrap();
    std::fs::write(lap.path("set/two"), "").unwrap();
    let output = lap.run(&["cast", "set", "--to", "nyc,ber,par", "--wait", "1 s"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(23), "{said}");
    assert!(output.stdout.is_empty());
    assert!(said.contains("ber: refused: its `[cast] inbox` accepts nothing from you"), "{said}");
    assert!(said.contains("par: ") && said.contains("1 of 3 have it"), "{said}");
    let there = std::fs::read(hosts[1].path("inbox/set/a/one")).unwrap();
    assert!(there == bytes(3_000_000, 1) && hosts[1].path("inbox/set/two").exists());
    assert!(ber.ok(&["cast", "status"]).contains("accepts no casts"));

    let said = lap.fails(2, &["cast", "set", "--to", "nobody"]);
    assert!(said.contains("`nobody` is not a member"), "{said}");
    let said = lap.fails(2, &["cast", "set", "--to", "nyc,lap"]);
    assert!(said.contains("`lap` is this host"), "{said}");
    let said = lap.fails(2, &["cast", "set", "--to", "nyc", "--block", "3MB"]);
    assert!(said.contains("blocks of 3 MB") && said.contains("4MiB"), "{said}");
    let status = lap.ok(&["cast", "status"]);
    assert!(status.contains("ber: refused: its `[cast] inbox`"), "{status}");
    assert!(status.contains("par: away: "), "{status}");
    let said = lap.fails(6, &["cast", "missing", "--to", "nyc"]);
    assert!(said.contains("missing: No such file"), "{said}");
}

#[test]
fn failed_output_stops_no_cast_and_control_characters_are_escaped() {
    let (hosts, _daemons) = mesh(&["nyc"]);
    let lap = Host::joined(&hosts[0], "lap", &[], &["--no-daemon"]);
    std::fs::write(lap.path("one"), bytes(100_000, 1)).unwrap();
    let run = |what: &str, stdout: Stdio| {
        let mut command = lap.command(&["cast", what, "--to", "nyc", "--json"]);
        command.stdout(stdout).spawn().unwrap().wait_with_output().unwrap()
    };
    // Standard output is closed.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = run("one", writer.into());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    assert!(std::fs::read(hosts[1].path("inbox/one")).unwrap() == bytes(100_000, 1));
    // The disk is full.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = run("one", full.into());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("thalweg: cannot write to standard output: No space"), "{said}");

    let output = run("missing\u{1b}[2J", Stdio::piped());
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
    let events = events(&output);
    let end = events.last().unwrap();
    assert_eq!((&end["event"], &end["exit_code"]), (&json!("failed"), &json!(6)), "{end}");
    let said = text(&output.stderr);
    assert!(said.contains(r"missing\u001b[2J: No such file") && !said.contains('\u{1b}'), "{said}");
}
