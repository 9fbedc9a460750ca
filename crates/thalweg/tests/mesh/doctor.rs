//! `thalweg doctor` with and without a mesh, a node and a named member.

use super::host::{Host, text};
use serde_json::Value;
use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _};

/// The report of a command that may end with 0 or 1, and its findings' severities by id.
fn examine(host: &Host, args: &[&str]) -> (Value, BTreeMap<String, String>) {
    let output = host.run(&[&["doctor", "--json"], args].concat());
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let healthy = output.status.code() == Some(0);
    assert_eq!(report["healthy"].as_bool(), Some(healthy), "{report}");
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    let findings = report["findings"].as_array().unwrap();
    let all = findings.iter().map(|one| (word(one, "id"), word(one, "severity"))).collect();
    (report, all)
}

#[test]
fn a_member_is_reached_back_and_a_stopped_node_is_named() {
    let fra = Host::founder();
    let _fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    let nyc_runs = nyc.start();

    let (report, found) = examine(&nyc, &["--peer", "fra"]);
    for id in ["port.reachable", "oracle.reached", "roster.valid", "version.same", "mtu.whole"] {
        assert_eq!(found.get(id).map(String::as_str), Some("ok"), "{id}: {report}");
    }
    assert_eq!(found["nat.none"], "ok", "{report}");
    assert_eq!(found["clock.offset"], "ok", "{report}");
    assert!(!found.contains_key("node.stopped"), "{report}");

    nyc_runs.end();
    let (report, found) = examine(&nyc, &[]);
    assert_eq!(found["node.stopped"], "warning", "{report}");
    // The command itself held the port meanwhile.
    assert_eq!(found["port.reachable"], "ok", "{report}");

    let (report, found) = examine(&nyc, &["--peer", "sfo"]);
    assert_eq!(found["peer.unreachable"], "error", "{report}");
}

#[test]
fn a_host_without_a_mesh_is_examined_as_far_as_possible() {
    let host = Host::new();
    let (report, found) = examine(&host, &[]);
    assert_eq!(found["state.no-mesh"], "note", "{report}");
    assert_eq!(found["clock.offset"], "unchecked", "{report}");
    assert!(found.contains_key("tcp.receive-buffer") && found.contains_key("descriptors.limit"));
}

#[test]
fn faults_of_state_settings_and_oracle_are_named_with_remedies() {
    let fra = Host::founder();
    let fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    fra_runs.end();
    let key = nyc.state().join("client.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let settings = nyc.path("bad.toml");
    fs::write(&settings, "[relay]\nidle = \"5\"\n").unwrap();
    let (report, found) = examine(&nyc, &["--config", &settings.display().to_string()]);
    for id in ["state.key-rights", "settings.problem", "oracle.unreachable"] {
        assert_eq!(found.get(id).map(String::as_str), Some("error"), "{id}: {report}");
    }
    let findings = report["findings"].as_array().unwrap();
    let of = |id: &str| findings.iter().find(|one| one["id"] == id).unwrap()["remedy"].clone();
    assert_eq!(of("state.key-rights"), format!("chmod 600 {}", key.display()));
    let shown = text(&nyc.run(&["doctor", "--config", &settings.display().to_string()]).stdout);
    assert!(shown.contains("settings.problem") && !shown.contains("descriptors.limit"), "{shown}");
}
