//! SOCKS5 for local programs: how connections end, which end closes them, which routes are tried.

use super::host::{Daemon, Host, PATIENCE, by_socks};
use socket2::SockRef;
use std::{
    io::{ErrorKind, Read, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

/// Each way to carry a local program's bytes.
const WAYS: [(&str, &str); 3] = [("fra", "open"), ("fra", "sealed"), ("direct", "sealed")];

fn settings(via: &str, legs: &str, idle: &str) -> String {
    format!(
        "[socks]\nlisten = \"127.0.0.1:0\"\nvia = [\"{via}\"]\nlegs = \"{legs}\"\nidle = \"{idle}\"\n"
    )
}

/// A relay, a host whose programs use it, and their destination.
struct Scene {
    _fra: Host,
    fra_runs: Daemon,
    nyc: Host,
    far: TcpListener,
}

impl Scene {
    fn new() -> Self {
        let fra = Host::founder();
        let fra_runs = fra.start();
        let nyc = Host::relay(&fra, "nyc", &[]);
        Self { _fra: fra, fra_runs, nyc, far: TcpListener::bind("127.0.0.1:0").unwrap() }
    }

    /// Calls `play` with both ends of a connection, for each of the ways.
    fn by_each_way(&self, idle: &str, play: impl Fn(TcpStream, TcpStream)) {
        for (via, legs) in WAYS {
            println!("via {via}, {legs}");
            let runs = self.nyc.start_with(&settings(via, legs, idle), None);
            let (program, far) = self.connect(&runs);
            play(program, far);
            runs.end();
        }
    }

    fn connect(&self, runs: &Daemon) -> (TcpStream, TcpStream) {
        let program = by_socks(runs.socks(), self.far.local_addr().unwrap());
        let far = self.far.accept().unwrap().0;
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        (program, far)
    }
}

fn reset(tcp: TcpStream) {
    SockRef::from(&tcp).set_linger(Some(Duration::ZERO)).unwrap();
}

/// Reads until the connection breaks; a clean end is an error.
fn assert_broken(mut tcp: TcpStream) {
    let e = tcp.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{e}");
}

#[test]
fn a_reset_by_the_program_reaches_the_far_end() {
    let mut scene = Scene::new();
    scene.by_each_way("10 min", |mut program, mut far| {
        program.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        reset(program);
        assert_broken(far);
    });
    for _ in 0..2 {
        let line = scene.fra_runs.log_until("up_bytes=1000");
        assert!(line.contains("event=broken"), "{line}");
    }
}

#[test]
fn a_reset_by_the_far_end_reaches_the_program() {
    Scene::new().by_each_way("10 min", |program, mut far| {
        far.write_all(&[7; 1000]).unwrap();
        reset(far);
        assert_broken(program);
    });
}

#[test]
fn a_half_closed_connection_continues() {
    Scene::new().by_each_way("10 min", |mut program, mut far| {
        program.write_all(b"request").unwrap();
        program.shutdown(Shutdown::Write).unwrap();
        let mut got = String::new();
        far.read_to_string(&mut got).unwrap();
        assert_eq!(got, "request");
        far.write_all(&[7; 1000]).unwrap();
        drop(far);
        let mut got = Vec::new();
        program.read_to_end(&mut got).unwrap();
        assert_eq!(got, [7; 1000]);
    });
}

#[test]
fn an_idle_connection_is_reset() {
    Scene::new().by_each_way("50 ms", |program, far| {
        assert_broken(program);
        assert_broken(far);
    });
}

const IDLE: Duration = Duration::from_millis(700);

/// More than all buffers on the path hold.
const MUCH: usize = 32 * 1024 * 1024;

/// Case 35: reads 1 kB/s for several idle periods, then all the rest.
fn read_slowly(mut tcp: TcpStream) {
    let (begun, mut read) = (Instant::now(), 0);
    while begun.elapsed() < IDLE * 5 {
        tcp.read_exact(&mut [0; 100]).unwrap();
        read += 100;
        sleep(Duration::from_millis(100));
    }
    let mut rest = Vec::new();
    tcp.read_to_end(&mut rest).unwrap();
    assert_eq!(read + rest.len(), MUCH);
}

#[test]
fn slow_readers_are_not_idle_on_either_side() {
    Scene::new().by_each_way("700 ms", |program, far| {
        let mut send = [program.try_clone().unwrap(), far.try_clone().unwrap()];
        scope(|scope| {
            for tcp in &mut send {
                scope.spawn(move || {
                    tcp.write_all(&vec![7; MUCH]).unwrap();
                    tcp.shutdown(Shutdown::Write).unwrap();
                });
            }
            scope.spawn(|| read_slowly(far));
            scope.spawn(|| read_slowly(program));
        });
    });
}

/// The reply of the listener at `proxy` to a CONNECT to `to`.
fn reply(proxy: SocketAddr, to: SocketAddr) -> u8 {
    let mut tcp = TcpStream::connect(proxy).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = to.port().to_be_bytes();
    tcp.write_all(&[&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1][..], &port].concat()).unwrap();
    let mut reply = [0; 4];
    tcp.read_exact(&mut reply).unwrap();
    reply[3]
}

#[test]
fn a_refusal_by_the_rules_of_a_relay_is_not_bypassed() {
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    far.set_nonblocking(true).unwrap();
    let fra = Host::founder();
    // The default policy permits no loopback address.
    let mut fra_runs = fra.start_under("", None);
    let nyc = Host::relay(&fra, "nyc", &[]);
    let settings = "[socks]\nlisten = \"127.0.0.1:0\"\nvia = [\"fra\", \"direct\"]\n";
    let mut runs = nyc.start_with(settings, None);
    assert_eq!(reply(runs.socks(), far.local_addr().unwrap()), 2);
    assert_eq!(far.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    fra_runs.log_until("event=refused");
    let line = runs.log_until("local_failed");
    assert!(line.contains(&format!("relay fra ({})", fra.address())), "{line}");
    // An unreachable relay is another case: then the next route is used.
    fra_runs.end();
    assert_eq!(reply(runs.socks(), far.local_addr().unwrap()), 0);
}
