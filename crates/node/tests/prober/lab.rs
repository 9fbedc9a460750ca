//! A measurement over an emulated link, compared with the result of another tool.

use crate::{
    oracle::Fake,
    scene::{Node, Set, member, signed},
};
use serde_json::Value;
use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    net::{IpAddr, SocketAddr},
    process::{Command, Stdio},
    time::Duration,
};
use thalweg_lab::{client::Lab, topology::Topology};
use thalweg_wire::mesh::measure::{Order, Outcome};

const LINK: &str = r#"
congestion = "cubic"
[host.a]
[host.b]
[link.there]
rate = "20 Mbit/s"
queue = "100 kB"
delay = "20 ms"
[[path]]
from = "a"
to = "b"
links = ["there"]
"#;

/// The lab; `None`, with the reason printed, if there cannot be one. In CI there must be one, unless THALWEG_SKIP is
/// set.
fn lab() -> Option<Lab> {
    let open = fs::File::options().read(true).write(true).open("/dev/net/tun");
    let started = match open {
        Ok(_) => Lab::start(&Topology::from_toml(LINK).unwrap()).map_err(|e| e.to_string()),
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

/// Tells this test, when it runs inside the lab, which of its hosts it is.
const PART: &str = "THALWEG_TEST_PART";
const NAME: &str = "lab::a_measured_rate_is_what_a_long_flow_reaches";

/// The port of `n2` on its host.
const PORT: u16 = 7373;

#[tokio::test(flavor = "multi_thread")]
async fn a_measured_rate_is_what_a_long_flow_reaches() {
    match env::var(PART).as_deref() {
        Ok("receiver") => return receive().await,
        Ok(receiver) => return send(receiver.parse().unwrap()).await,
        Err(_) => {}
    }
    let Some(lab) = lab() else { return };
    let truth = truth(&lab);
    let this = env::current_exe().unwrap();
    let part = |host: &str, part: &str| {
        let mut command: Command = lab.command(host, &this);
        command.args(["--exact", NAME, "--nocapture"]).env(PART, part);
        command
    };
    let mut receiver = part("b", "receiver").stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(receiver.stdout.take().unwrap()).lines();
    lines.map(Result::unwrap).find(|line| line.contains("ready")).unwrap();
    let sent = part("a", &lab.address("b").to_string()).output().unwrap();
    receiver.kill().unwrap();
    receiver.wait().unwrap();
    let said = String::from_utf8_lossy(&sent.stdout);
    assert!(sent.status.success(), "{said}{}", String::from_utf8_lossy(&sent.stderr));
    let number = |key: &str| -> f64 {
        let value = said.lines().find_map(|line| line.split_once(key)).unwrap().1;
        value.split_whitespace().next().unwrap().parse().unwrap()
    };
    let (bps, took) = (number("bps="), number("took="));
    println!("measured {bps:.0} bit/s in {took:.2} s; the long flow reached {truth:.0}");
    // The aim is 10 %; the emulator is late on a busy machine.
    assert!((bps / truth - 1.0).abs() <= 0.2, "{bps} and {truth}");
    assert!(bps < 20e6, "more than the link carries: {bps}");
}

/// The goodput of the last five of six seconds, bit/s.
fn truth(lab: &Lab) -> f64 {
    let mut sink = lab.tool("b", &["tcp-sink", "--listen", "[::]:0", "--sessions", "1"]);
    let mut sink = sink.stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    let mut lines = BufReader::new(sink.stdout.take().unwrap());
    lines.read_line(&mut ready).unwrap();
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let port = ready["ready"]["address"].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let to = format!("{}:{port}", lab.address("b"));
    let source = ["tcp-source", "--to", &to, "--for", "6s", "--warmup", "1s"];
    let output = lab.tool("a", &source).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    sink.kill().unwrap();
    sink.wait().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["goodput"]["value"].as_f64().unwrap()
}

fn everywhere() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], PORT))
}

async fn receive() {
    let node = Node::start(2, Set { listen: everywhere(), ..Set::default() }).await;
    // The receiver need not know the sender's address.
    node.membership.offer(&signed(1, vec![member(1, everywhere()), node.member()])).unwrap();
    println!("ready");
    std::future::pending().await
}

async fn send(receiver: IpAddr) {
    let oracle = Fake::start().await;
    let mut node = Node::start(1, Set::default()).await;
    let members = vec![node.member(), member(2, SocketAddr::new(receiver, PORT))];
    node.membership.offer(&signed(1, members)).unwrap();
    node.obey(&oracle);
    let order = Order {
        id: 1,
        to: "n2".parse().unwrap(),
        max_bytes: 50_000_000,
        max_time: Duration::from_secs(5),
        congestion_control: None,
        valid_for: Duration::from_secs(60),
        ticket: String::new(),
    };
    oracle.order(1, order);
    let done = oracle.done().await;
    let Outcome::Measured { bps, took, steady, .. } = done.outcome else { panic!("{done:?}") };
    println!("bps={bps} took={} steady={steady}", took.as_secs_f64());
}
