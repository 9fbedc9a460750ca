//! The key that signs the mesh's rosters is replaced.

use super::host::{Host, text, until};
use std::fs;

/// The number of the key that signed the roster at a host; the oracle may be away.
fn key_number(host: &Host) -> u64 {
    let status = host.run(&["status", "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
    status["roster"]["key_number"].as_u64().unwrap()
}

#[test]
fn members_follow_a_new_signing_key_and_the_old_one_signs_nothing_more() {
    let fra = Host::founder();
    let fra_runs = fra.start();
    let ber = Host::relay(&fra, "ber", &[]);
    let _ber = ber.start();
    let (key, root) = (fra.state().join("oracle/mesh.key"), fra.state().join("oracle/root.key"));
    let stolen = fs::read(&key).unwrap();
    let said = text(&fra.run(&["mesh", "rekey"]).stderr);
    assert!(said.contains("is in use by"), "{said}");
    assert_eq!(fs::read(&key).unwrap(), stolen);
    fra_runs.end();

    let said = text(&fra.run(&["status"]).stderr);
    assert!(said.contains("root.key to a safe place off this host"), "{said}");
    let away = fra.path("stick");
    fs::rename(root, &away).unwrap();
    let said = text(&fra.run(&["mesh", "rekey"]).stderr);
    assert!(said.contains("--root FILE"), "{said}");
    assert_eq!(key_number(&ber), 1);
    let away = away.display().to_string();
    let rekeyed = fra.json(&["mesh", "rekey", "--root", &away, "--json"]);
    assert!(rekeyed["number"].as_u64().unwrap() > 1);
    let fra_runs = fra.start();
    until("ber has a roster of the new key", || rekeyed["number"] == key_number(&ber));
    assert_eq!(fra.json(&["status", "--json"])["mesh"], rekeyed["mesh"]);
    Host::relay(&fra, "ams", &[]);
    fra_runs.end();

    // The oracle with the old key signs nothing any more, and says what to do.
    fs::write(&key, &stolen).unwrap();
    let token = fra.run(&["mesh", "token"]);
    assert!(!token.status.success());
    let said = text(&token.stderr);
    assert!(said.contains("copy mesh.key from the oracle that has it"), "{said}");
}
