//! Messages about mistakes and faults.

use super::host::{Host, text};
use std::{fs, net::TcpListener};

fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    // The message and hints, without a backtrace or debug output.
    assert!(said.lines().count() <= 4, "{said}");
}

#[test]
fn without_a_mesh_commands_explain_how_to_create_or_join_one() {
    let host = Host::new();
    for args in [
        &["status"][..],
        &["mesh", "members"],
        &["mesh", "token"],
        &["mesh", "revoke", "x"],
        &["node"],
    ] {
        let said = host.fails(1, args);
        assert_says(&said, &["in no mesh", "thalweg mesh init", "thalweg mesh join TOKEN"]);
    }
    let said = host.fails(4, &["stream", "subscribe", "stage"]);
    assert_says(&said, &["in no mesh", "thalweg mesh init", "thalweg mesh join TOKEN"]);
}

#[test]
fn a_mesh_is_not_overwritten_and_a_state_directory_is_not_shared() {
    let fra = Host::founder();
    let before = fs::read(fra.state().join("mesh.json")).unwrap();
    assert_says(
        &fra.fails(1, &["mesh", "init"]),
        &["belongs to a mesh already, as `fra`", "--state DIR"],
    );
    assert_eq!(fs::read(fra.state().join("mesh.json")).unwrap(), before);
    let _runs = fra.start();
    assert_says(&fra.fails(1, &["node"]), &["is in use by process"]);
}

#[test]
fn an_unusable_state_directory_is_reported() {
    let host = Host::new();
    fs::write(host.state(), "a file").unwrap();
    assert_says(
        &host.fails(1, &["mesh", "init"]),
        &["cannot", &host.state().display().to_string()],
    );
}

#[test]
fn a_port_in_use_is_named() {
    let fra = Host::founder();
    let taken = TcpListener::bind(fra.address()).unwrap();
    let said = fra.fails(1, &["node", "--listen", &fra.address()]);
    assert_says(&said, &[&fra.address(), "another program uses this address"]);
    drop(taken);
    assert!(!fra.state().join("node.sock").exists());
}

#[test]
fn tokens_are_refused_with_the_reason() {
    let fra = Host::founder();
    let _runs = fra.start();
    let join = |token: &str, more: &[&str]| {
        let host = Host::new();
        host.fails(1, &[&["mesh", "join", token, "--no-daemon"], more].concat())
    };
    let token = |args: &[&str]| fra.ok(&[&["mesh", "token"], args].concat()).trim().to_owned();
    assert_says(&join("hello", &[]), &["begins with `thalweg-`"]);
    let good = token(&[]);
    assert_says(&join(&good[..good.len() - 2], &[]), &["incomplete or altered"]);
    assert_says(&join(&token(&["--valid", "1ns"]), &[]), &["the token expired", "ask for another"]);
    let named = token(&["--name", "sfo"]);
    assert_says(&join(&named, &["--name", "lax"]), &["for the name sfo", "--name sfo"]);
    assert_says(&join(&token(&[]), &["--name", "fra"]), &["the name fra is taken"]);
    let relay = token(&["--role", "relay"]);
    assert_says(&join(&relay, &["--name", "a"]), &["the role relay needs"]);

    // Of two hosts with one token, one joins, and may repeat it.
    let first = Host::new();
    let args = ["mesh", "join", &good, "--name", "one", "--no-daemon"];
    assert!(first.ok(&args).starts_with("joined as one (client)"));
    assert!(first.ok(&args).starts_with("joined as one (client)"));
    assert_says(&join(&good, &["--name", "two"]), &["was used by another host"]);
}

#[test]
fn errors_name_the_admins_and_the_unreachable_oracle() {
    let fra = Host::founder();
    let runs = fra.start();
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    for args in [&["mesh", "token"][..], &["mesh", "revoke", "fra"]] {
        assert_says(&lap.fails(1, args), &["role admin", "ask one of them: fra"]);
    }
    assert_says(&fra.fails(1, &["mesh", "revoke", "fra"]), &["the last oracle of the mesh"]);
    assert_says(
        &fra.fails(1, &["mesh", "revoke", "zoo"]),
        &["no member has the name or key `zoo`"],
    );
    let token = fra.ok(&["mesh", "token"]);
    runs.end();
    let tried = &["no oracle could be reached", &fra.address()];
    assert_says(&lap.fails(1, &["mesh", "token"]), tried);
    assert_says(&Host::new().fails(1, &["mesh", "join", token.trim()]), tried);
}

#[test]
fn invalid_routes_are_refused_with_a_suggestion() {
    let fra = Host::founder();
    let _runs = fra.start();
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    let get = |args: &[&str]| lap.fails(2, &[&["get", "http://127.0.0.1:9/x"], args].concat());
    assert_says(&get(&["--via", "frra"]), &["did you mean `fra`?"]);
    assert_says(&get(&["--via", "lap"]), &["`lap` is this host itself"]);
    assert_says(&get(&["--path", "fra+fra"]), &["twice on one route"]);
    assert_says(&get(&["--path", "a+b+c+d"]), &["at most 3 relays"]);
    let nyc = Host::relay(&fra, "nyc", &["country=us"]);
    let said = nyc.fails(2, &["get", "http://127.0.0.1:9/x", "--path", "fra+zzz"]);
    assert_says(&said, &["no member of the mesh is named `zzz`"]);
    let ewr = Host::joined(&fra, "ewr", &[], &["--no-daemon"]);
    let said =
        ewr.fails(2, &["get", "http://127.0.0.1:9/x", "--path", "nyc", "--avoid", "country=us"]);
    assert_says(&said, &["relay `nyc` has the tag `country=us`"]);
}

#[test]
fn a_check_of_settings_lists_all_mistakes() {
    let host = Host::new();
    let file = host.path("bad.toml");
    fs::write(&file, "[relay]\nidel = \"5 s\"\nconnect = 5\n").unwrap();
    let name = file.display().to_string();
    let said = host.fails(1, &["config", "check", "--config", &name]);
    assert_says(&said, &["bad.toml:2:1", "idle", "bad.toml:3"]);
    assert_says(&host.fails(1, &["node", "--config", &name]), &["bad.toml:2:1"]);
    let good = host.path("good.toml");
    fs::write(&good, host.ok(&["config", "example"])).unwrap();
    assert!(
        host.ok(&["config", "check", "--config", &good.display().to_string()])
            .contains("no errors")
    );
}

#[test]
fn json_output_contains_nothing_else() {
    let host = Host::new();
    let init =
        host.json(&["mesh", "init", "--name", "fra", "--address", &host.address(), "--json"]);
    assert_eq!(init["name"], "fra");
    // Before its daemon runs, the founder is its own oracle.
    let token = host.json(&["mesh", "token", "--role", "relay", "--json"]);
    assert!(token["token"].as_str().unwrap().starts_with("thalweg-"));
    let status = host.json(&["status", "--json"]);
    assert_eq!((&status["daemon"], &status["roster"]["members"]), (&false.into(), &1.into()));
    assert!(status["roster"]["expires_unix_seconds"].as_u64().unwrap() > 1_700_000_000);
    let _runs = host.start();
    let status = host.json(&["status", "--json"]);
    assert_eq!(status["daemon"], true);
    let left = status["roster"]["left_seconds"].as_f64().unwrap();
    assert!(status["up_seconds"].as_f64().unwrap() < left, "{status}");
    assert!(status["oracle"]["members"][0]["seen_seconds"].is_f64(), "{status}");
    let nyc = Host::new();
    let token = host.ok(&["mesh", "token"]);
    let joined =
        nyc.json(&["mesh", "join", token.trim(), "--name", "nyc", "--no-daemon", "--json"]);
    assert_eq!((&joined["name"], &joined["roles"]), (&"nyc".into(), &["client"][..].into()));
    let output = host.run(&["mesh", "token"]);
    assert!(text(&output.stdout).trim().starts_with("thalweg-"));
    assert_eq!(text(&output.stdout).lines().count(), 1, "the token alone");
    assert!(text(&output.stderr).contains("one host can join"));
}
