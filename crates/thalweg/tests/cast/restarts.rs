//! `kill -9` of a source, of a receiver, and of a forwarding receiver: after a restart the cast continues.

use crate::{
    bytes, events,
    host::{Daemon, Host, text, until},
    mesh, named, start,
};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    process::{Child, Output},
};

/// Less than the inboxes accept.
pub const LENGTH: usize = 96_000_000;

/// Bytes that may be in flight and not on the disk yet, and the rounding to whole pages.
const IN_FLIGHT: u64 = 4_000_000;

/// lap → nyc → ber; ber may also fetch from lap.
const LINE: &str = "from,to,rate\nlap,nyc,90 Mbit/s\nnyc,ber,80 Mbit/s\nlap,ber,10 Mbit/s\n";

/// Bytes on the disk of the unfinished file; a file system may allocate more blocks than that.
pub fn written(host: &Host) -> u64 {
    let homes = fs::read_dir(host.path("inbox")).unwrap().flatten();
    let made = homes.map(|home| home.path().join("made/image"));
    let blocks: u64 = made.filter_map(|f| fs::metadata(f).ok()).map(|file| file.blocks()).sum();
    (blocks * 512).min(LENGTH as u64)
}

/// A source with the file `image`, and its content.
pub fn source(founder: &Host) -> (Host, Vec<u8>) {
    let lap = Host::joined(founder, "lap", &[], &["--no-daemon"]);
    let content = bytes(LENGTH, 1);
    fs::write(lap.path("image"), &content).unwrap();
    fs::write(lap.path("rates.csv"), LINE).unwrap();
    (lap, content)
}

pub fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap()
}

/// Checks that the content has arrived and that hardly any of it arrived twice.
fn check(output: &Output, host: &Host, name: &str, content: &[u8]) -> Value {
    assert!(output.status.success(), "{} {}", text(&output.stdout), text(&output.stderr));
    assert!(fs::read(host.path("inbox/image")).unwrap() == content);
    let all = events(output);
    let received = named(&all, "received");
    let its = received.into_iter().rfind(|event| event["receiver"] == name).unwrap();
    assert!(number(its, "duplicate_bytes") <= LENGTH as u64 / 100, "{its}");
    its.clone()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Kills a daemon. Returns the bytes that it had written by then.
fn kill_daemon(daemon: Daemon, host: &Host) -> u64 {
    daemon.signal("KILL");
    drop(daemon);
    written(host)
}

#[test]
fn a_killed_receiver_continues_with_everything_it_had_written() {
    let (hosts, mut daemons) = mesh(&["nyc"]);
    let (lap, content) = source(&hosts[0]);
    let casting = lap.command(&["cast", "image", "--to", "nyc", "--json"]).spawn().unwrap();
    until("a quarter is there", || written(&hosts[1]) > LENGTH as u64 / 4);
    let kept = kill_daemon(daemons.remove(1), &hosts[1]);
    assert!(!hosts[1].path("inbox/image").exists(), "it was too late to kill it");
    daemons.push(start(&hosts[1]));
    let output = casting.wait_with_output().unwrap();
    let its = check(&output, &hosts[1], "nyc", &content);
    let most = LENGTH as u64 - kept + IN_FLIGHT;
    assert!(number(&its, "received_bytes") <= most, "{kept} were there: {its}");
}

#[test]
fn a_killed_forwarding_receiver_is_replaced_and_continues() {
    let (hosts, mut daemons) = mesh(&["nyc", "ber"]);
    let (lap, content) = source(&hosts[0]);
    let args = ["cast", "image", "--to", "nyc,ber", "--rates", "rates.csv", "--parents", "1"];
    let casting = lap.command(&[&args[..], &["--json"]].concat()).spawn().unwrap();
    until("an eighth is there", || written(&hosts[2]) > LENGTH as u64 / 8);
    let kept = kill_daemon(daemons.remove(1), &hosts[1]);
    daemons.push(start(&hosts[1]));
    let output = casting.wait_with_output().unwrap();
    check(&output, &hosts[2], "ber", &content);
    let its = check(&output, &hosts[1], "nyc", &content);
    let most = LENGTH as u64 - kept + IN_FLIGHT;
    assert!(number(&its, "received_bytes") <= most, "{kept} were there: {its}");
    let all = events(&output);
    let left = named(&all, "parent_left");
    assert!(left.iter().any(|l| l["receiver"] == "ber" && l["parent"] == "nyc"), "{left:?}");
}

#[test]
fn a_killed_source_continues_the_same_job() {
    let (hosts, _daemons) = mesh(&["nyc", "ber"]);
    let (lap, content) = source(&hosts[0]);
    let args = ["cast", "image", "--to", "nyc,ber", "--rates", "rates.csv", "--parents", "1"];
    let args = [&args[..], &["--json"]].concat();
    let casting = lap.command(&args).spawn().unwrap();
    until("an eighth is there", || written(&hosts[2]) > LENGTH as u64 / 8);
    let job = |status: &Value| status["sources"][0].clone();
    let running = job(&lap.json(&["cast", "status", "--json"]));
    let twice = lap.run(&args);
    kill(casting);
    assert_eq!(running["is_running"], true, "{running}");
    assert_eq!(twice.status.code(), Some(7), "{}", text(&twice.stderr));
    let killed = job(&lap.json(&["cast", "status", "--json"]));
    assert_eq!((&killed["is_running"], &killed["end"]), (&false.into(), &Value::Null));
    assert!(lap.ok(&["cast", "status"]).contains("interrupted; the same command continues"));

    let output = lap.run(&args);
    // The receivers' counts include both runs.
    for (host, name) in [(&hosts[1], "nyc"), (&hosts[2], "ber")] {
        let its = check(&output, host, name, &content);
        assert!(number(&its, "received_bytes") <= LENGTH as u64 / 100 * 101, "{its}");
    }
    let ended = job(&lap.json(&["cast", "status", "--json"]));
    assert_eq!((&ended["end"], &ended["job"]), (&"complete".into(), &killed["job"]));
    let ber = &ended["receivers"]["ber"];
    assert_eq!((&ber["min_hop_bps"], &ber["parents"][0]), (&80_000_000.into(), &"nyc".into()));

    // A receiver knows what the plan expects of it, also after a restart of the cast.
    let status = hosts[2].json(&["cast", "status", "--json"]);
    let cast = &status["casts"][0];
    assert_eq!(cast["min_hop_bps"], 80_000_000, "{cast}");
    assert_eq!(cast["way"], serde_json::json!(["lap", "nyc"]), "{cast}");
    assert_eq!(cast["job"]["kind"], "cast", "{cast}");
    assert!(hosts[2].ok(&["cast", "status"]).contains("planned path lap → nyc → this node"));
}
