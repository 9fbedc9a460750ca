//! A node whose oracle cannot run: it relays, serves the roster it has, and reports the fault.

use super::host::{Daemon, Host, by_socks, text, until};
use sqlx::{Connection as _, Executor as _, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::PathBuf,
};

const SOCKS: &str = "[socks]\nlisten = \"127.0.0.1:0\"\nvia = [\"fra\"]\n";

fn database(host: &Host) -> PathBuf {
    host.state().join("oracle/oracle.db")
}

fn damage(host: &Host) {
    fs::write(database(host), vec![0x5a; 20_000]).unwrap();
    for beside in ["oracle/oracle.db-wal", "oracle/oracle.db-shm"] {
        _ = fs::remove_file(host.state().join(beside));
    }
}

fn assert_relays(by: &Daemon) {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut program = by_socks(by.socks(), echo.local_addr().unwrap());
    let (mut far, _) = echo.accept().unwrap();
    far.write_all(b"ok").unwrap();
    program.read_exact(&mut [0; 2]).unwrap();
}

/// Checks that `fra` reports that its oracle does not run, with this reason.
fn assert_reported(fra: &Host, reason: &str) {
    let output = fra.run(&["status"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    for part in ["the oracle does not run", reason, "Restore", "no host can join or be revoked"] {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
    let said = fra.fails(1, &["mesh", "token"]);
    assert!(said.contains("the oracle does not run") && said.contains(reason), "{said}");
}

#[test]
fn with_a_damaged_database_the_node_relays_and_serves_its_roster() {
    let fra = Host::founder();
    let fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    let token = fra.ok(&["mesh", "token"]);
    fra_runs.end();
    damage(&fra);
    // The node's own cache is gone, too: the copy beside the database is used.
    fs::remove_file(fra.state().join("roster")).unwrap();
    let mut fra_runs = fra.start();
    let line = fra_runs.log_until("event=oracle_down");
    assert!(line.contains("level=alert") && line.contains("oracle.db"), "{line}");
    assert_reported(&fra, "is damaged");

    // A member without a roster gets it, and uses this relay.
    fs::remove_file(nyc.state().join("roster")).unwrap();
    let nyc_runs = nyc.start_with(SOCKS, None);
    until("nyc has the roster", || nyc.run(&["mesh", "members"]).status.success());
    assert_relays(&nyc_runs);
    let status = nyc.run(&["status"]);
    assert_eq!(status.status.code(), Some(1));
    let said = text(&status.stdout);
    assert!(said.contains("not reached: the oracle does not run"), "{said}");
    // A stranger must not learn paths of this host.
    let said = Host::new().fails(1, &["mesh", "join", token.trim(), "--name", "x", "--no-daemon"]);
    assert!(said.contains("oracle is not running") && !said.contains("oracle.db"), "{said}");
}

#[test]
fn with_a_lost_directory_the_node_still_relays() {
    let fra = Host::founder();
    let fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    until("fra has heard of nyc", || fra.ok(&["mesh", "members"]).contains("nyc"));
    fra_runs.end();
    fs::rename(fra.state().join("oracle"), fra.path("elsewhere")).unwrap();
    let fra_runs = fra.start();
    assert_relays(&nyc.start_with(SOCKS, None));
    assert_reported(&fra, "holds no oracle");
    fra_runs.end();
    fs::rename(fra.path("elsewhere"), fra.state().join("oracle")).unwrap();
    let _fra_runs = fra.start();
    fra.ok(&["status"]);
}

#[test]
fn without_any_roster_the_node_does_not_start() {
    let fra = Host::founder();
    damage(&fra);
    fs::remove_file(fra.state().join("roster")).unwrap();
    fs::remove_file(fra.state().join("oracle/roster")).unwrap();
    let said = fra.fails(1, &["node", "--listen", "127.0.0.1:0"]);
    assert!(said.contains("oracle.db") && said.contains("is damaged"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_locked_database_the_node_still_relays() {
    let fra = Host::founder();
    let fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    until("fra has heard of nyc", || fra.ok(&["mesh", "members"]).contains("nyc"));
    fra_runs.end();
    let options = SqliteConnectOptions::new().filename(database(&fra));
    let options = options.pragma("locking_mode", "EXCLUSIVE");
    let mut other = SqliteConnection::connect_with(&options).await.unwrap();
    other.execute("BEGIN EXCLUSIVE").await.unwrap();
    let fra_runs = fra.start();
    assert_relays(&nyc.start_with(SOCKS, None));
    assert_reported(&fra, "is locked");
    fra_runs.end();
    other.close().await.unwrap();
    let _fra_runs = fra.start();
    fra.ok(&["mesh", "token"]);
}
