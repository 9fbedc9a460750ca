//! A relay that altered a byte: what the user is told, and how to allow the relay again.

use super::{Tool, bytes};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::{fs, path::Path, process::Command};

/// Long enough that each path brings a part before another one is found.
const LENGTH: u32 = 6_000_000;
const RATE: &str = "rate=16Mbps";

/// Runs `thalweg`, which must succeed. Returns standard output and standard error.
fn thalweg(dir: &Path, args: &str) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(args.split_whitespace()).current_dir(dir);
    command.env("THALWEG_STATE", dir.join("no-mesh")).env("XDG_CACHE_HOME", dir.join("cache"));
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "thalweg {args}: {err}");
    (out, err)
}

fn quarantined(dir: &Path) -> Vec<Value> {
    let (shown, _) = thalweg(dir, "history --json");
    let all: Value = serde_json::from_str(&shown).unwrap();
    all["quarantined"].as_array().unwrap().clone()
}

#[test]
fn the_command_that_get_suggests_lifts_the_quarantine() {
    let dir = tempfile::tempdir().unwrap();
    let (www, content) = (dir.path().join("www"), bytes(LENGTH));
    fs::create_dir(&www).unwrap();
    fs::write(www.join("a"), &content).unwrap();
    let Some(server) = Tool::start("web-faults", &[&www]) else { return };
    // Each path brings at least its share of the sampling, some megabytes.
    let Some(relay) = Tool::start("relay-faults", &["--corrupt-at", "100 kB"]) else { return };
    let (server, relay) = (&server.address, &relay.address);
    let hash: String = Sha256::digest(&content).iter().map(|b| format!("{b:02x}")).collect();
    let url = format!("http://{server}/{RATE}/a");

    let (_, said) = thalweg(dir.path(), &format!("get {url} --via {relay} --sha256 {hash}"));
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), content);
    let lift = format!("history lift {relay}");
    assert!(said.contains(&format!("`thalweg {lift}`")), "{said}");
    let blames = quarantined(dir.path());
    assert_eq!(blames.len(), 1, "{blames:?}");
    assert_eq!(blames[0]["relay"], **relay);
    assert_eq!(blames[0]["origin"], format!("http://{server}"));

    let (lifted, _) = thalweg(dir.path(), &lift);
    assert!(lifted.contains("may be used again"), "{lifted}");
    assert_eq!(quarantined(dir.path()), Vec::<Value>::new());
}
