//! Faults of casts: full disks, files that change, abandoned casts, and receivers chosen by tag.

use crate::{
    bytes, events,
    host::{Daemon, Host, text, until},
    mesh, named,
    restarts::{LENGTH, number, source, written},
    start,
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::FileExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

#[test]
fn a_cast_goes_to_all_members_or_to_those_with_a_tag() {
    let founder = Host::founder();
    let fra = start(&founder);
    let nyc = Host::relay(&founder, "nyc", &["lab"]);
    let ber = Host::relay(&founder, "ber", &[]);
    let daemons = [fra, start(&nyc), start(&ber)];
    let _cli = Host::joined(&founder, "cli", &[], &[]);
    let lap = Host::joined(&founder, "lap", &[], &["--no-daemon"]);
    for name in ["empty", "byte"] {
        fs::write(lap.path(name), if name == "empty" { "" } else { "x" }).unwrap();
    }
    lap.ok(&["cast", "empty", "--to-all", "--tag", "lab"]);
    let output = lap.run(&["cast", "byte", "--to-all"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("left out: cli, without an address\n"), "{said}");
    let output = lap.run(&["cast", "byte", "--to", "cli", "--wait", "1 s"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert_eq!(said.matches("cli: node `cli` has no address").count(), 1, "told once: {said}");
    for (host, has) in [(&founder, false), (&nyc, true), (&ber, false)] {
        assert_eq!(host.path("inbox/empty").exists(), has);
        assert_eq!(fs::read_to_string(host.path("inbox/byte")).unwrap(), "x");
    }
    assert_eq!(fs::metadata(nyc.path("inbox/empty")).unwrap().len(), 0);
    let said = lap.fails(2, &["cast", "byte", "--to-all", "--tag", "none"]);
    assert!(said.contains("there are no receivers"), "{said}");
    drop(daemons);
}

#[test]
fn an_abandoned_cast_is_not_continued() {
    let (hosts, _daemons) = mesh(&["nyc"]);
    let _away = Host::relay(&hosts[0], "par", &[]);
    let lap = Host::joined(&hosts[0], "lap", &[], &["--no-daemon"]);
    fs::write(lap.path("one"), bytes(100_000, 1)).unwrap();
    let output = lap.run(&["cast", "one", "--to", "nyc,par", "--wait", "1 s"]);
    assert_eq!(output.status.code(), Some(23), "{}", text(&output.stderr));
    let status = lap.ok(&["cast", "status"]);
    assert!(status.contains("1 complete: incomplete; the same command continues"), "{status}");
    let output = lap.run(&["cast", "forget", "one", "--json"]);
    assert_eq!(output.status.code(), Some(23), "{}", text(&output.stderr));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&told["complete"][0], &told["told"][0]["receiver"]),
        (&"nyc".into(), &"par".into())
    );
    assert!(told["told"][0]["why"].is_string(), "{told}");
    assert!(lap.ok(&["cast", "status"]).contains("abandoned"));
    assert!(hosts[1].path("inbox/one").exists());
    let said = lap.fails(2, &["cast", "forget", "two"]);
    assert!(said.contains("has the name or number `two`"), "{said}");
}

#[test]
fn a_file_that_changes_ends_its_cast_and_does_not_appear_at_receivers() {
    let (hosts, _daemons) = mesh(&["nyc"]);
    let (lap, content) = source(&hosts[0]);
    let casting = lap.command(&["cast", "image", "--to", "nyc", "--json"]).spawn().unwrap();
    until("an eighth is there", || written(&hosts[1]) > LENGTH as u64 / 8);
    signal(&casting, "STOP");
    // Length and time of the file are unchanged.
    let file = fs::File::options().write(true).open(lap.path("image")).unwrap();
    let before = file.metadata().unwrap().modified().unwrap();
    let other: Vec<u8> = content.iter().map(|byte| !byte).collect();
    file.write_all_at(&other, 0).unwrap();
    file.set_times(fs::FileTimes::new().set_modified(before)).unwrap();
    signal(&casting, "CONT");
    let output = casting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
    let all = events(&output);
    let broken = named(&all, "broken");
    assert!(broken[0]["why"].as_str().unwrap().contains("has changed"), "{all:?}");
    assert!(!hosts[1].path("inbox/image").exists());
}

/// Starts the daemon in a mount namespace of its own, with an inbox of 160 MB. While the file `fill` exists in the
/// host's directory, the inbox is full, which `filled` confirms; when `fill` is removed, there is room again.
fn start_small(host: &Host) -> Daemon {
    let inbox = host.path("inbox");
    fs::create_dir_all(&inbox).unwrap();
    let settings =
        format!("[cast]\nkeep_free = \"0 B\"\ninbox = [{{ path = {inbox:?}, from = [\"*\"] }}]\n");
    let file = host.path("node.toml");
    fs::write(&file, settings).unwrap();
    let (listen, file) = (host.address(), file.display().to_string());
    let plain = host.command(&["node", "--json", "--listen", &listen, "--config", &file]);
    // The shell beside it ends after 100 s, whatever happens.
    let script = "mount -t tmpfs -o size=160m none \"$0\" || exit 1
        (n=0; while [ ! -e fill ] && [ $n -lt 1000 ]; do sleep 0.1; n=$((n+1)); done
         dd if=/dev/zero of=\"$0/.fill\" bs=1M; touch filled
         while [ -e fill ] && [ $n -lt 1000 ]; do sleep 0.1; n=$((n+1)); done
         rm \"$0/.fill\") >/dev/null 2>&1 &
        exec \"$@\"";
    let mut command = unshared(script);
    command.arg(&inbox).arg(plain.get_program()).args(plain.get_args());
    let environment = plain.get_envs().filter_map(|(name, value)| Some((name, value?)));
    command.envs(environment).current_dir(plain.get_current_dir().unwrap_or(Path::new("/")));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Daemon::spawn(&mut command)
}

fn unshared(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    command
}

#[test]
fn a_full_disk_is_reported_and_received_data_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let possible = unshared("mount -t tmpfs -o size=1m none \"$0\"").arg(dir.path()).status();
    if !possible.is_ok_and(|status| status.success()) {
        println!("skipped: this system lets nobody mount a small file system (unshare, tmpfs)");
        return;
    }
    let founder = Host::founder();
    let _fra = founder.start();
    let nyc = Host::relay(&founder, "nyc", &[]);
    let _daemon = start_small(&nyc);
    let (lap, _) = source(&founder);
    let mut casting = lap.command(&["cast", "image", "--to", "nyc", "--json"]).spawn().unwrap();
    let held = |status: &Value| status["casts"][0]["held_bytes"].as_u64().unwrap_or(0);
    until("something is there", || held(&nyc.json(&["cast", "status", "--json"])) > 0);
    signal(&casting, "STOP");
    fs::write(nyc.path("fill"), "").unwrap();
    until("the disk is full", || nyc.path("filled").exists());
    signal(&casting, "CONT");
    let mut all: Vec<Value> = Vec::new();
    for line in BufReader::new(casting.stdout.take().unwrap()).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let is_full = event["event"] == "refused";
        if is_full && nyc.path("fill").exists() {
            let why = event["why"].as_str().unwrap();
            assert!(why.contains("No space left") && event["again"] == true, "{event}");
            fs::remove_file(nyc.path("fill")).unwrap();
        }
        all.push(event);
    }
    assert!(casting.wait().unwrap().success(), "{all:?}");
    assert!(!nyc.path("fill").exists(), "the disk was full too late: {all:?}");
    let received = named(&all, "received");
    assert!(number(received[0], "duplicate_bytes") <= LENGTH as u64 / 100, "{received:?}");
    let status = nyc.json(&["cast", "status", "--json"]);
    assert_eq!(status["casts"][0]["state"], "complete", "{status}");
}
