//! Failures of `thalweg measure`, on loopback.

use crate::host::{Host, until};

#[test]
fn an_unknown_member_and_one_without_probes_have_different_errors() {
    let fra = Host::founder();
    let _runs = fra.start_with("\n[measure]\nenabled = false\n", None);
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    let said = lap.fails(2, &["measure", "nobody"]);
    assert!(said.contains("nobody"), "{said}");
    let said = lap.fails(4, &["measure", "fra"]);
    assert_eq!(said.matches("it accepts no probe trains").count(), 1, "{said}");
    assert!(said.contains("[measure]"), "{said}");
    let said = lap.fails(2, &["measure", "fra", "--method", "hops", "--back"]);
    assert!(said.contains("--back"), "{said}");
}

#[test]
fn a_member_without_a_daemon_is_reported_as_unreachable() {
    let fra = Host::founder();
    let runs = fra.start();
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    runs.end();
    let said = lap.fails(4, &["measure", "fra"]);
    assert!(said.contains("fra"), "{said}");
    assert!(!fra.state().join("probe.sock").exists());
}

#[test]
fn a_daemon_has_a_probe_socket_while_it_runs() {
    let fra = Host::founder();
    let runs = fra.start();
    let socket = fra.state().join("probe.sock");
    until("the socket is there", || socket.exists());
    runs.end();
    assert!(!socket.exists(), "it goes with the daemon");
}
