//! `thalweg measure`, where it cannot: on loopback.

use crate::host::{Host, until};

#[test]
fn nobody_and_whoever_takes_no_probes_are_told_apart() {
    let fra = Host::founder();
    let _runs = fra.start_with("\n[measure]\nenabled = false\n", None);
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    let said = lap.fails(2, &["measure", "nobody"]);
    assert!(said.contains("nobody"), "{said}");
    let said = lap.fails(4, &["measure", "fra"]);
    assert_eq!(said.matches("it takes no probe trains").count(), 1, "{said}");
    assert!(said.contains("[measure]"), "{said}");
    let said = lap.fails(2, &["measure", "fra", "--method", "hops", "--back"]);
    assert!(said.contains("--back"), "{said}");
}

#[test]
fn a_member_that_is_not_there_is_not_reached() {
    let fra = Host::founder();
    let runs = fra.start();
    let lap = Host::joined(&fra, "lap", &[], &["--no-daemon"]);
    runs.end();
    let said = lap.fails(4, &["measure", "fra"]);
    assert!(said.contains("fra"), "{said}");
    assert!(!fra.state().join("probe.sock").exists());
}

#[test]
fn a_daemon_takes_trains_of_other_programs_at_its_socket() {
    let fra = Host::founder();
    let runs = fra.start();
    let socket = fra.state().join("probe.sock");
    until("the socket is there", || socket.exists());
    runs.end();
    assert!(!socket.exists(), "it goes with the daemon");
}
