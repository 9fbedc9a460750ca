//! The key that signs the mesh's rosters is replaced.

use super::host::{Host, text, until};
use std::fs;

/// The version of the roster at a host.
fn version(host: &Host) -> u64 {
    host.json(&["status", "--json"])["roster"]["version"].as_u64().unwrap()
}

#[test]
fn members_follow_a_new_signing_key_and_a_thief_of_the_old_one_is_refused() {
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
    let before = version(&ber);
    let away = away.display().to_string();
    let rekeyed = fra.json(&["mesh", "rekey", "--root", &away, "--json"]);
    assert_eq!(rekeyed["number"], 2);
    let fra_runs = fra.start();
    until("ber has a roster of the new key", || version(&ber) > before);
    assert_eq!(fra.json(&["status", "--json"])["mesh"], rekeyed["mesh"]);
    Host::relay(&fra, "ams", &[]);
    fra_runs.end();

    // The oracle with the old key signs nothing any more, and says what to do.
    fs::write(&key, &stolen).unwrap();
    let token = fra.run(&["mesh", "token"]);
    assert!(!token.status.success());
    let said = text(&token.stderr);
    assert!(said.contains("copy mesh.key from there"), "{said}");
}
