//! Commands on the founder's host while its daemon does not run, or serves no other host.

use super::host::{Host, text, until};

#[test]
fn a_revocation_without_a_daemon_updates_the_own_roster_at_once() {
    let fra = Host::founder();
    let runs = fra.start();
    Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    until("it is in the own roster", || fra.ok(&["mesh", "members"]).contains("lap"));
    runs.end();
    let said = fra.ok(&["mesh", "revoke", "lap", "--wait", "1ms"]);
    assert!(said.contains("no other node is connected"), "{said}");
    assert!(!fra.ok(&["mesh", "members"]).contains("lap"));
}

#[test]
fn a_member_without_a_daemon_is_not_waited_for() {
    let fra = Host::founder();
    let _runs = fra.start();
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    lap.ok(&["status"]);
    let revoked = fra.json(&["mesh", "revoke", "lap", "--wait", "30s", "--json"]);
    assert_eq!((&revoked["confirmed"], &revoked["of"]), (&1.into(), &1.into()), "{revoked}");
    assert_eq!(revoked["silent"], 0);
}

#[test]
fn suggested_commands_use_the_same_directory() {
    let host = Host::new();
    let dir = host.path("my mesh").display().to_string();
    let output =
        host.run(&["mesh", "init", "--name", "a", "--address", "127.0.0.1:9", "--state", &dir]);
    let said = text(&output.stderr);
    for next in ["thalweg node", "thalweg mesh token --role relay"] {
        assert!(said.contains(&format!("{next} --state '{dir}'")), "{said}");
    }
    let given = host.path("plain").display().to_string();
    let said =
        host.run(&["mesh", "init", "--name", "a", "--address", "127.0.0.1:9", "--state", &given]);
    assert!(text(&said.stderr).contains(&format!("thalweg node --state {given} ")));
}

#[test]
fn a_missing_settings_file_is_reported_once() {
    let said = Host::new().fails(1, &["config", "check", "--config", "/nowhere/x.toml"]);
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}
