//! Tests a member that asks a relay for forbidden destinations.

use super::{
    super::{mesh, report::Report},
    test_mesh::{TestMesh, TestNode},
};
use anyhow::Context as _;
use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use thalweg_net::{DialOptions, Dialer, Route};
use thalweg_wire::Destination;
use tokio::{
    net::TcpListener,
    time::{Instant, sleep},
};

/// Names in the relay's `/etc/hosts` and their addresses.
const NAMES: [(&str, &str); 9] = [
    ("loopback.test", "127.0.0.1"),
    ("loopback6.test", "::1"),
    ("metadata.test", "169.254.169.254"),
    ("private.test", "10.1.2.3"),
    ("unique-local.test", "fd00::1"),
    ("mapped.test", "::ffff:10.0.0.1"),
    ("nat64.test", "64:ff9b::a00:1"),
    ("six-to-four.test", "2002:a00:1::1"),
    ("shared.test", "100.64.0.1"),
];

/// Such addresses without a name, in several spellings.
const ADDRESSES: [&str; 8] = [
    "127.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::1]",
    "169.254.169.254",
    "[fd00:ec2::254]",
    "0.0.0.0",
];

/// A line of the hosts file, one byte of which changes all the time; its length stays the same.
const REBINDING: &str = "127.0.0.5 rebinding.test\n";

/// The offset of that byte.
const DIGIT: u64 = 8;

/// The longest wait until a line is in the log.
const PATIENCE: Duration = Duration::from_secs(20);

/// Asks for all of them, and makes `rounds` connections to the name that changes.
///
/// # Errors
/// When the mesh cannot be founded.
pub async fn run(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    let allowed = TcpListener::bind("127.0.0.5:0").await?;
    let port = allowed.local_addr()?.port();
    let forbidden = TcpListener::bind(("127.0.0.6", port)).await?;
    let settings =
        format!("allow_to = [\"127.0.0.5/32\"]\nports = [\"80\", \"443\", \"{port}\"]\n");
    let test_mesh = TestMesh::new()?;
    let fra = test_mesh.create_mesh("fra", &settings)?;
    let hosts = fra.state().with_file_name("hosts");
    let lines: String = NAMES.iter().map(|(name, ip)| format!("{ip} {name}\n")).collect();
    fs::write(&hosts, format!("{REBINDING}{lines}"))?;
    let daemon = fra.start_with_hosts(&hosts).context("cannot replace /etc/hosts; run as root")?;
    let at = fra.address().into();
    let (dialer, route) = mesh::route(fra.state(), at, false, DialOptions::default())?;
    report_refused(report, &fra, &dialer, &route).await?;
    test_rebinding(report, (&dialer, &route), &hosts, [allowed, forbidden], rounds).await?;
    daemon.end()
}

/// Reports how many destinations were refused, and how many of these refusals are in the log.
async fn report_refused(
    report: &mut Report,
    fra: &TestNode,
    dialer: &Dialer,
    route: &Route,
) -> anyhow::Result<()> {
    let names = NAMES.iter().map(|(name, _)| format!("{name}:80"));
    let asked: Vec<String> = names.chain(ADDRESSES.iter().map(|a| format!("{a}:443"))).collect();
    let (mut refused, mut logged) = (0, 0);
    for to in &asked {
        let to: Destination = to.parse().with_context(|| format!("`{to}`"))?;
        let done = dialer.dial(route, &to).await;
        let error = done.err().map(|e| e.to_string()).unwrap_or_default();
        let is_refused = error.contains("not allowed by the relay's rules");
        let is_logged = is_in_log(fra, &to).await?;
        if !is_refused || !is_logged {
            thalweg_console::note!(
                "thalweg-bench: load strangers: {to}: `{error}`, logged: {is_logged}"
            );
        }
        refused += u32::from(is_refused);
        logged += u32::from(is_logged);
    }
    report.add("inner_asked", "1", asked.len() as f64);
    report.add("inner_not_refused", "1", asked.len() as f64 - f64::from(refused));
    report.add("inner_not_logged", "1", asked.len() as f64 - f64::from(logged));
    Ok(())
}

/// Whether a refusal of `to` is in the log, which a separate thread writes.
async fn is_in_log(fra: &TestNode, to: &Destination) -> anyhow::Result<bool> {
    let (until, to) = (Instant::now() + PATIENCE, format!(" to={to} "));
    loop {
        let log = fra.log()?;
        let is = |line: &str| line.starts_with("event=refused") && line.contains(&to);
        if log.lines().any(|line| is(line) && line.contains("reason=address_class")) {
            return Ok(true);
        }
        if Instant::now() > until {
            return Ok(false);
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// Connects to a name that changes between an allowed and a forbidden address many times during each connection.
async fn test_rebinding(
    report: &mut Report,
    (dialer, route): (&Dialer, &Route),
    hosts: &Path,
    listeners: [TcpListener; 2],
    rounds: usize,
) -> anyhow::Result<()> {
    let to = Destination::new("rebinding.test", listeners[0].local_addr()?.port())?;
    let reached = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    for (i, listener) in listeners.into_iter().enumerate() {
        let reached = Arc::clone(&reached);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                reached[i].fetch_add(1, Relaxed);
            }
        });
    }
    let file = File::options().write(true).open(hosts)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let flipping = std::thread::spawn(move || {
        while !stopped.load(Relaxed) {
            for digit in [b"6", b"5"] {
                _ = file.write_all_at(digit, DIGIT);
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    let mut connected = 0;
    for _ in 0..rounds {
        connected += u32::from(dialer.dial(route, &to).await.is_ok());
    }
    stop.store(true, Relaxed);
    flipping.join().map_err(|_| anyhow::anyhow!("the thread that changes the address panicked"))?;
    report.add("rebinding_asked", "1", rounds as f64);
    report.add("rebinding_connected", "1", connected.into());
    report.add("rebinding_refused", "1", rounds as f64 - f64::from(connected));
    report.add("rebinding_reached_forbidden", "1", reached[1].load(Relaxed) as f64);
    Ok(())
}
