//! Tests of name resolution for paths that are bound to an interface.
#![expect(clippy::unwrap_used, reason = "tests")]

mod server;

use hickory_resolver::proto::rr::RecordType;
use server::{NAME, Server};
use std::{
    env, fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    num::NonZeroU32,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};
use thalweg_lab::{client::Lab, topology::Topology};
use thalweg_net::{
    Destination, DialError, DialOptions, Dialer, NameSources, Route, Stream, interface_for,
    interfaces,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Sources in `directory`: a hosts file, and servers by interface.
fn sources(directory: &Path, port: u16) -> NameSources {
    NameSources {
        hosts: directory.join("hosts"),
        links: directory.to_owned(),
        servers: vec![directory.join("resolv.conf")],
        port,
        patience: Duration::from_secs(3),
    }
}

fn dialer(sources: NameSources) -> Dialer {
    // Even a very busy machine answers within this time.
    let deadline = Duration::from_secs(60);
    Dialer::new(DialOptions { deadline, ..DialOptions::default() }).with_name_sources(sources)
}

fn loopback() -> NonZeroU32 {
    interface_for(LOOPBACK.into()).unwrap()
}

async fn dial(
    dialer: &Dialer,
    name: &str,
    port: u16,
    interface: NonZeroU32,
) -> Result<Stream, DialError> {
    let to: Destination = format!("{name}:{port}").parse().unwrap();
    dialer.dial(&Route::direct().by_interface(interface), &to).await
}

#[tokio::test]
async fn a_bound_path_asks_its_interfaces_server_and_caches_the_answer() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start("127.0.0.1:0", LOOPBACK);
    fs::write(directory.path().join(loopback().to_string()), "DNS=127.0.0.1\n").unwrap();
    let dialer = dialer(sources(directory.path(), server.at.port()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for _ in 0..3 {
        let (dialled, accepted) =
            tokio::join!(dial(&dialer, NAME, port, loopback()), listener.accept(),);
        dialled.unwrap();
        accepted.unwrap();
    }
    assert_eq!(server.askers(RecordType::A), [LOOPBACK]);
    // "No address" is cached only if the server says for how long (RFC 2308), which this one does not.
    assert_eq!(server.askers(RecordType::AAAA), [LOOPBACK; 3]);
}

#[tokio::test]
async fn a_missing_name_is_a_final_answer() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start("127.0.0.1:0", LOOPBACK);
    fs::write(directory.path().join(loopback().to_string()), "DNS=127.0.0.1\n").unwrap();
    let dialer = dialer(sources(directory.path(), server.at.port()));
    let error = dial(&dialer, "other.example", 1, loopback()).await.unwrap_err().to_string();
    let told = format!("no such name (answer of 127.0.0.1 through interface {})", loopback());
    assert!(error.contains(&told), "{error}");
}

#[tokio::test]
async fn the_hosts_file_comes_first() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start("127.0.0.1:0", LOOPBACK);
    fs::write(directory.path().join(loopback().to_string()), "DNS=127.0.0.1\n").unwrap();
    fs::write(directory.path().join("hosts"), "127.0.0.1 here.example\n").unwrap();
    let dialer = dialer(sources(directory.path(), server.at.port()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    dial(&dialer, "here.example", port, loopback()).await.unwrap();
    assert!(server.askers(RecordType::A).is_empty());
}

#[tokio::test]
async fn without_a_server_the_system_is_asked_and_the_error_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let dialer = dialer(sources(directory.path(), 53));
    // By RFC 6761 no such name exists anywhere.
    let error = dial(&dialer, "nowhere.invalid", 1, loopback()).await.unwrap_err().to_string();
    let told = format!("through interface {}: no name server is known", loopback());
    assert!(error.contains("the system's resolver") && error.contains(&told), "{error}");
}

#[tokio::test]
async fn silent_servers_are_not_asked_again_for_a_while_and_the_error_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_nonblocking(true).unwrap();
    let questions = || std::iter::from_fn(|| silent.recv(&mut [0; 512]).ok()).count();
    fs::write(directory.path().join(loopback().to_string()), "DNS=127.0.0.1\n").unwrap();
    let port = silent.local_addr().unwrap().port();
    let patience = Duration::from_millis(200);
    let dialer = dialer(NameSources { patience, ..sources(directory.path(), port) });
    let ask = || dial(&dialer, "nowhere.example", 1, loopback());
    let first = ask().await.unwrap_err().to_string();
    assert!(first.contains("the system's resolver") && first.contains("127.0.0.1: "), "{first}");
    assert!(questions() > 0);
    let again = ask().await.unwrap_err().to_string();
    assert!(again.contains("127.0.0.1 did not answer a moment ago"), "{again}");
    assert_eq!(questions(), 0);
}

/// A client with two interfaces, and a server that tells each caller its address.
const TWO_INTERFACES: &str = r#"
[host.client]
interfaces = 2
[host.server]
[link.one]
rate = "100 Mbit/s"
[link.two]
rate = "100 Mbit/s"
[[path]]
from = "client:0"
to = "server"
links = ["one"]
[[path]]
from = "client:1"
to = "server"
links = ["two"]
"#;

/// Starts the lab. Without a lab returns `None` and prints the reason; in CI it must be available, unless THALWEG_SKIP
/// is set.
fn lab() -> Option<Lab> {
    let open = fs::File::options().read(true).write(true).open("/dev/net/tun");
    let started = match open {
        Ok(_) => {
            Lab::start(&Topology::from_toml(TWO_INTERFACES).unwrap()).map_err(|e| e.to_string())
        }
        Err(e) => Err(format!("/dev/net/tun: {e}")),
    };
    started
        .inspect_err(|why| {
            let set = |name| env::var_os(name).is_some();
            assert!(!set("CI") || set("THALWEG_SKIP"), "no lab here: {why}");
            eprintln!("skipped: no lab here: {why}");
        })
        .ok()
}

/// The variable that tells this test, when run inside the lab, which host it is.
const PART: &str = "THALWEG_TEST_PART";

/// Queries and connection leave by the interface to which they are bound, whichever it is.
#[tokio::test]
async fn in_a_lab_questions_and_connection_leave_by_the_bound_interface() {
    match env::var(PART).as_deref() {
        Ok("server") => return serve().await,
        Ok(server) => return call(server.parse().unwrap()).await,
        Err(_) => {}
    }
    let Some(lab) = lab() else { return };
    let this = env::current_exe().unwrap();
    let name = "in_a_lab_questions_and_connection_leave_by_the_bound_interface";
    let part = |host: &str, part: &str| {
        let mut command: Command = lab.command(host, &this);
        command.args(["--exact", name, "--nocapture"]).env(PART, part);
        command
    };
    let mut server = part("server", "server").stdout(Stdio::null()).spawn().unwrap();
    let called = part("client", &lab.address("server").to_string()).output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let told = String::from_utf8_lossy(&called.stderr);
    assert!(called.status.success(), "{told}{}", String::from_utf8_lossy(&called.stdout));
}

/// Answers name queries at port 53; at port 80 tells each caller its address and the addresses of all queries so far.
async fn serve() {
    let own = interfaces().unwrap()[0].addresses.clone();
    let own = own.iter().find_map(|ip| match ip {
        IpAddr::V4(ip) => Some(*ip),
        IpAddr::V6(_) => None,
    });
    let own = own.unwrap();
    let names = Server::start(&format!("{own}:53"), own);
    let listener = TcpListener::bind("0.0.0.0:80").await.unwrap();
    loop {
        let (mut caller, from) = listener.accept().await.unwrap();
        let askers = names.askers(RecordType::A).into_iter().chain(names.askers(RecordType::AAAA));
        let askers: Vec<_> = askers.map(|ip| ip.to_string()).collect();
        let text = format!("{} {}", from.ip(), askers.join(" "));
        caller.write_all(text.as_bytes()).await.unwrap();
    }
}

async fn call(server: IpAddr) {
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while let Err(e) = tokio::net::TcpStream::connect(SocketAddr::new(server, 80)).await {
        assert!(tokio::time::Instant::now() < until, "the server never came: {e}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("resolv.conf"), format!("nameserver {server}\n")).unwrap();
    let found = interfaces().unwrap();
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().any(|i| i.index == interface_for(server).unwrap()));
    for interface in &found {
        // A new dialer has no cached answers.
        let dialer = dialer(sources(directory.path(), 53));
        let mut stream = dial(&dialer, NAME, 80, interface.index).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let mut told = text.split(' ').map(|ip| ip.parse().unwrap());
        let caller = told.next().unwrap();
        assert!(interface.addresses.contains(&caller), "{caller} is none of {interface:?}");
        let asked = told.filter(|asker| interface.addresses.contains(asker)).count();
        assert_eq!(asked, 2, "A and AAAA by {interface:?}: {text}");
    }
}
