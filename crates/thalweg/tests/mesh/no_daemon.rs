//! Hosts without a daemon: each command fetches a new roster itself, and reports a revocation.

use super::host::{Host, text};
use std::{io::Read as _, process::Stdio};

fn names(host: &Host) -> Vec<String> {
    let roster = host.json(&["mesh", "members", "--json"]);
    let members = roster["members"].as_array().unwrap();
    members.iter().map(|m| m["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn commands_without_a_daemon_renew_the_roster_and_report_a_revocation() {
    let fra = Host::founder();
    let runs = fra.start();
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    let nyc = Host::relay(&fra, "nyc", &["country=us"]);
    // A name that the stored roster lacks makes the command ask the oracle at once: the route is known, while the URL's
    // port is closed.
    let args = ["get", "http://127.0.0.1:9/x", "--via", "nyc", "--connect-timeout", "1s"];
    let said = lap.fails(4, &args);
    assert!(!said.contains("no member"), "{said}");
    assert_eq!(names(&lap), ["fra", "lap", "nyc"]);
    // An unknown tag is reported, a known one is not.
    let avoid = |tag| text(&lap.run(&[&args[..2], &["--avoid", tag]].concat()).stderr);
    assert!(
        avoid("county=us").contains("has no effect")
            && avoid("county=us").contains("`country=us`?")
    );
    assert!(!avoid("country=us").contains("has no effect"));

    // A member without a daemon is not waited for, although its commands ask the oracle.
    let revoked = fra.json(&["mesh", "revoke", "nyc", "--wait", "30s", "--json"]);
    assert_eq!(revoked["confirmed"], revoked["of"], "{revoked}");
    assert_eq!(names(&lap), ["fra", "lap"]);
    assert!(lap.ok(&["status"]).contains("2 members"));

    // If the oracle is away, the stored roster is used.
    runs.end();
    let away = lap.run(&["mesh", "members"]);
    assert!(away.status.success() && text(&away.stdout).contains("fra"));
    assert!(text(&away.stderr).contains("the stored roster"), "{}", text(&away.stderr));

    let runs = fra.start();
    fra.ok(&["mesh", "revoke", "lap"]);
    let said = lap.fails(1, &["mesh", "members"]);
    assert!(said.contains("it was revoked"), "{said}");
    let status = lap.run(&["status"]);
    assert_eq!(status.status.code(), Some(1));
    assert!(text(&status.stdout).contains("no longer valid for this host"));
    let said = text(&lap.run(&["get", "http://127.0.0.1:9/x", "--via", "sfo"]).stderr);
    assert!(said.contains("it was revoked"), "{said}");
    drop((runs, nyc));
}

#[test]
fn a_closed_standard_output_ends_a_command_quietly() {
    let fra = Host::founder();
    for args in [
        &["mesh", "members"][..],
        &["mesh", "token"],
        &["mesh", "token", "--json"],
        &["config", "example"],
    ] {
        let mut command = fra.command(args);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = command.stdout(Stdio::from(writer)).spawn().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{args:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = fra.command(&["mesh", "members"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("cannot write to standard output") && !said.contains("panicked"),
        "{said}"
    );
}

#[test]
fn a_token_can_be_read_from_standard_input() {
    let fra = Host::founder();
    let _runs = fra.start();
    let lap = Host::new();
    std::fs::write(lap.path("token"), fra.ok(&["mesh", "token"])).unwrap();
    let file = std::fs::File::open(lap.path("token")).unwrap();
    let mut join = lap.command(&["mesh", "join", "-", "--name", "lap", "--no-daemon"]);
    let output = join.stdin(file).output().unwrap();
    assert!(text(&output.stdout).starts_with("joined as lap"), "{}", text(&output.stderr));
    let said = Host::new().fails(1, &["mesh", "join", "-"]);
    assert!(said.contains("no token was given"), "{said}");
}
