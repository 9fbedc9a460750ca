//! A daemon without free descriptors, and members without their oracle.

use super::host::{Host, by_socks, text, until};
use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

#[test]
fn without_free_descriptors_open_connections_continue_and_later_ones_are_served() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let fra = Host::founder();
    let mut fra_runs = fra.start_with("", Some(64));
    let nyc = Host::relay(&fra, "nyc", &[]);
    let socks = "[socks]\nlisten = \"127.0.0.1:0\"\nvia = [\"fra\"]\n";
    let nyc_runs = nyc.start_with(socks, None);
    let mut program = by_socks(nyc_runs.socks(), echo.local_addr().unwrap());
    let (mut far, _) = echo.accept().unwrap();

    let crowd: Vec<_> = (0..128).map(|_| TcpStream::connect(fra.address()).unwrap()).collect();
    fra_runs.log_until("event=accept_failed");
    program.write_all(b"ping").unwrap();
    let mut got = [0; 4];
    far.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"ping");

    drop(crowd);
    let mut program = by_socks(nyc_runs.socks(), echo.local_addr().unwrap());
    let (mut far, _) = echo.accept().unwrap();
    far.write_all(b"late").unwrap();
    program.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"late");
}

#[test]
fn without_the_oracle_members_continue_and_report_it() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let fra = Host::founder();
    let fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    let sfo = Host::relay(&fra, "sfo", &[]);
    let _nyc_runs = nyc.start();
    let status = nyc.json(&["status", "--json"]);
    assert_eq!((&status["name"], &status["oracle"]["reached"]), (&"nyc".into(), &true.into()));
    let version = status["roster"]["version"].as_u64().unwrap();
    until("sfo is known to nyc", || {
        let roster = nyc.json(&["mesh", "members", "--json"]);
        roster["version"].as_u64().unwrap() > version || roster["members"][2]["name"] == "sfo"
    });
    fra_runs.end();

    let output = nyc.run(&["status"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("not reached: no oracle could be reached"), "{said}");
    assert!(said.contains(&fra.address()), "{said}");
    // Restarted from its cached roster, a member still reaches the relay of another.
    let socks = "[socks]\nlisten = \"127.0.0.1:0\"\nvia = [\"nyc\"]\n";
    let sfo_runs = sfo.start_with(socks, None);
    let mut program = by_socks(sfo_runs.socks(), echo.local_addr().unwrap());
    let (mut far, _) = echo.accept().unwrap();
    far.write_all(b"ok").unwrap();
    program.read_exact(&mut [0; 2]).unwrap();
}
