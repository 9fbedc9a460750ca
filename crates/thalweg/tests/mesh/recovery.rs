//! The oracle's host is lost, and restored from one backup file and a member's roster.

use super::host::{Host, text, until};
use std::{fs, os::unix::fs::PermissionsExt as _};

#[test]
fn a_lost_oracle_is_restored_from_a_backup_and_a_members_roster() {
    let fra = Host::founder();
    let fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &["country=us"]);
    let nyc_runs = nyc.start();
    Host::joined(&fra, "old", &[], &["--no-daemon"]);
    let backup = fra.path("mesh.backup").display().to_string();
    fra.ok(&["mesh", "backup", &backup]);
    let mode = fs::metadata(&backup).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let root = fs::read(fra.state().join("oracle/root.key")).unwrap();

    // After the backup one host joins and another one is revoked.
    let ber = Host::relay(&fra, "ber", &[]);
    let revoked = fra.json(&["mesh", "revoke", "old", "--wait", "30s", "--json"]);
    assert_eq!(revoked["confirmed"], revoked["of"], "nyc has the newest roster");
    drop(fra_runs);
    fs::remove_dir_all(fra.state()).unwrap();

    let roster = nyc.state().join("roster").display().to_string();
    let said = fra.fails(2, &["mesh", "restore", &backup]);
    assert!(said.contains("--roster"), "{said}");
    let stranger = Host::founder();
    let foreign = stranger.state().join("roster").display().to_string();
    let said = fra.fails(1, &["mesh", "restore", &backup, "--roster", &foreign]);
    assert!(said.contains("is not used"), "{said}");
    let restored = fra.json(&["mesh", "restore", &backup, "--roster", &roster, "--json"]);
    assert_eq!((&restored["name"], &restored["members"]), (&"fra".into(), &3.into()));
    assert!(!fra.state().join("oracle/root.key").exists(), "the root key is not in a backup");
    let said = fra.fails(1, &["mesh", "restore", &backup, "--roster", &roster]);
    assert!(said.contains("already"), "{said}");

    // Members find the oracle at its old address and key, without a new token.
    let _fra = fra.start();
    let names = |host: &Host| {
        let roster = host.json(&["mesh", "members", "--json"]);
        let names = roster["members"].as_array().unwrap().iter();
        let names = names.map(|member| member["name"].as_str().unwrap().to_owned());
        names.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(names(&fra), ["ber", "fra", "nyc"]);
    until("nyc reaches the restored oracle", || nyc.run(&["status"]).status.success());
    let _ber = ber.start();
    Host::relay(&fra, "ams", &[]);
    until("nyc knows the next member", || names(&nyc) == ["ams", "ber", "fra", "nyc"]);
    nyc_runs.end();

    // The root key, which was kept elsewhere, still replaces the signing key of the restored oracle.
    assert!(!root.is_empty());
}

#[test]
fn a_backup_is_made_on_the_oracles_host_only_and_damage_is_detected() {
    let fra = Host::founder();
    let runs = fra.start();
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    let said = lap.fails(1, &["mesh", "backup", "-"]);
    assert!(said.contains("holds no oracle"), "{said}");
    let whole = fra.ok(&["mesh", "backup", "-"]);
    runs.end();
    let file = lap.path("damaged");
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let other = Host::new();
    let args = ["mesh", "restore", &file.display().to_string(), "--old-roster"];
    let said = other.fails(1, &args);
    assert!(said.contains("not a whole backup"), "{said}");
    assert!(!other.state().join("node.key").exists());
    fs::write(&file, &whole).unwrap();
    let output = other.run(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("Revoke the members again"));
}
