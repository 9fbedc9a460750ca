//! SIGTERM: open connections may end by themselves, new ones are refused, and those that take too long are reset.

use super::host::{Host, by_socks, until};
use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

const SOCKS: &str = "[socks]\nlisten = \"127.0.0.1:0\"\nvia = [\"fra\"]\n";

#[test]
fn open_connections_end_by_themselves_while_new_ones_are_refused() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let fra = Host::founder();
    let mut fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    let nyc_runs = nyc.start_with(SOCKS, None);
    let mut program = by_socks(nyc_runs.socks(), echo.local_addr().unwrap());
    let (mut far, _) = echo.accept().unwrap();

    fra_runs.signal("TERM");
    let line = fra_runs.log_until("event=draining");
    assert!(line.contains("live=1"), "{line}");
    until("the port is closed", || TcpStream::connect(fra.address()).is_err());
    let mut got = [0; 4];
    for word in [b"ping", b"pong"] {
        program.write_all(word).unwrap();
        far.read_exact(&mut got).unwrap();
        assert_eq!(&got, word);
    }
    // Each direction ends when its sender ends it.
    drop(far);
    assert_eq!(program.read_to_end(&mut Vec::new()).unwrap(), 0);
    drop(program);
    let lines = fra_runs.ended();
    assert!(lines.iter().any(|l| l.contains("event=closed")), "{lines:?}");
    let stopped = lines.iter().find(|l| l.contains("event=stopped")).unwrap();
    assert!(stopped.contains("cut=0"), "{stopped}");
}

#[test]
fn a_connection_that_outlasts_the_drain_is_reset_at_both_ends() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let fra = Host::founder();
    let fra_runs = fra.start_with("drain = \"50 ms\"\n", None);
    let nyc = Host::relay(&fra, "nyc", &[]);
    let nyc_runs = nyc.start_with(SOCKS, None);
    let mut program = by_socks(nyc_runs.socks(), echo.local_addr().unwrap());
    let (mut far, _) = echo.accept().unwrap();
    let lines = fra_runs.end();
    let stopped = lines.iter().find(|l| l.contains("event=stopped")).unwrap();
    assert!(stopped.contains("cut=1"), "{stopped}");
    far.read_to_end(&mut Vec::new()).unwrap_err();
    program.read_to_end(&mut Vec::new()).unwrap_err();
}
