//! Cases 25 and 26: without an oracle, or with a faulty one, relays continue.

use super::host::{Daemon, Host, by_socks, text, until};
use sqlx::{Connection as _, Executor as _, SqliteConnection, sqlite::SqliteConnectOptions};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::fs::FileExt as _,
    process::Command,
};

/// Checks that bytes pass between `program` and `far` in both directions.
fn assert_flows(program: &mut TcpStream, far: &mut TcpStream) {
    let mut got = [0; 4];
    program.write_all(b"ping").unwrap();
    far.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"ping");
    far.write_all(b"pong").unwrap();
    program.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"pong");
}

/// Opens a connection of a program on a host whose SOCKS5 port uses the mesh.
fn flow(by: &Daemon, echo: &TcpListener) -> (TcpStream, TcpStream) {
    let program = by_socks(by.socks(), echo.local_addr().unwrap());
    let (far, _) = echo.accept().unwrap();
    (program, far)
}

fn through(relay: &str) -> String {
    format!("[socks]\nlisten = \"127.0.0.1:0\"\nvia = [\"{relay}\"]\n")
}

#[test]
fn without_the_oracle_connections_continue_and_a_relay_starts_from_its_cache() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let fra = Host::founder();
    let fra_runs = fra.start();
    let nyc = Host::relay(&fra, "nyc", &[]);
    let sfo = Host::relay(&fra, "sfo", &[]);
    let nyc_runs = nyc.start();
    until("nyc knows sfo", || nyc.ok(&["mesh", "members"]).contains("sfo"));
    let sfo_runs = sfo.start_with(&through("nyc"), None);
    let (mut program, mut far) = flow(&sfo_runs, &echo);
    assert_flows(&mut program, &mut far);

    // Killed, without an orderly end.
    drop(fra_runs);
    assert_flows(&mut program, &mut far);
    let (mut another, mut its_far) = flow(&sfo_runs, &echo);
    assert_flows(&mut another, &mut its_far);
    drop((program, far, another, its_far));
    nyc_runs.end();
    let _nyc_runs = nyc.start();
    let (mut program, mut far) = flow(&sfo_runs, &echo);
    assert_flows(&mut program, &mut far);
}

/// Checks that with a faulty oracle in `fra` its own relay continues, and that commands report the fault.
fn assert_relays(fra: &Host, nyc_runs: &Daemon, echo: &TcpListener, said: &str) {
    let (mut program, mut far) = flow(nyc_runs, echo);
    assert_flows(&mut program, &mut far);
    let token = fra.run(&["mesh", "token"]);
    assert_eq!(token.status.code(), Some(1));
    assert!(text(&token.stderr).contains(said), "{}", text(&token.stderr));
    assert_flows(&mut program, &mut far);
}

fn mesh(fra: &Host) -> (Daemon, Daemon) {
    let fra_runs = fra.start();
    let nyc = Host::relay(fra, "nyc", &[]);
    // `nyc`'s directory may be removed: its daemon has read it.
    (fra_runs, nyc.start_with(&through("fra"), None))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_database_does_not_affect_relays() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let fra = Host::founder();
    let (_fra_runs, nyc_runs) = mesh(&fra);
    let (mut program, mut far) = flow(&nyc_runs, &echo);
    let file = fra.state().join("oracle/oracle.db");
    let options = SqliteConnectOptions::new().filename(file);
    let mut other = SqliteConnection::connect_with(&options).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    assert_relays(&fra, &nyc_runs, &echo, "locked");
    assert_flows(&mut program, &mut far);
    other.execute("ROLLBACK").await.unwrap();
    fra.ok(&["mesh", "token"]);
}

#[test]
fn a_damaged_database_does_not_affect_relays() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let fra = Host::founder();
    let (fra_runs, nyc_runs) = mesh(&fra);
    let (mut program, mut far) = flow(&nyc_runs, &echo);
    let file = fra.state().join("oracle/oracle.db");
    let length = fs::metadata(&file).unwrap().len() as usize;
    let database = fs::OpenOptions::new().write(true).open(&file).unwrap();
    database.write_all_at(&vec![0x5a; length], 0).unwrap();
    _ = fs::remove_file(fra.state().join("oracle/oracle.db-wal"));
    let (mut another, mut its_far) = flow(&nyc_runs, &echo);
    assert_flows(&mut another, &mut its_far);
    assert_flows(&mut program, &mut far);
    // After a restart the node relays without its oracle, and says what to do.
    drop((program, far, another, its_far));
    fra_runs.end();
    let mut fra_runs = fra.start();
    let line = fra_runs.log_until("event=oracle_down");
    assert!(line.contains("oracle.db") && line.contains("Restore"), "{line}");
    let (mut program, mut far) = flow(&nyc_runs, &echo);
    assert_flows(&mut program, &mut far);
}

#[test]
fn a_full_disk_does_not_affect_relays() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let fra = Host::new();
    let Some(disk) = SmallDisk::mount(fra.state()) else {
        println!("skipped: no file system can be mounted here (needs root)");
        return;
    };
    fra.ok(&["mesh", "init", "--name", "fra", "--address", &fra.address()]);
    let (_fra_runs, nyc_runs) = mesh(&fra);
    let (mut program, mut far) = flow(&nyc_runs, &echo);
    let filler = disk.0.join("filler");
    let file = fs::File::create(&filler).unwrap();
    let mut at = 0;
    while file.write_at(&[1; 4096], at).is_ok_and(|n| n > 0) {
        at += 4096;
    }
    assert_relays(&fra, &nyc_runs, &echo, "is full");
    assert_flows(&mut program, &mut far);
    drop(file);
    fs::remove_file(&filler).unwrap();
    fra.ok(&["mesh", "token"]);
}

/// A file system of 4 MiB in memory.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: std::path::PathBuf) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs"]).arg(&at);
        mount.status().ok()?.success().then_some(Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
