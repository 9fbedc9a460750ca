//! The datagram tools over loopback, where datagrams are lost only if a test drops them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod tool_support;

use serde_json::Value;
use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    thread,
};
use tool_support::{ServerTool, run, run_failing};

#[test]
fn pings_are_answered_over_both_families() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let echo = ServerTool::start(&["udp-echo", "--listen", address]);
        let ping = ["udp-ping", "--to", &echo.address, "--count", "20", "--interval", "1ms"];
        let report = run(&ping);
        assert_eq!((&report["sent"], &report["lost"]), (&20.into(), &0.into()));
        let rtt = |key: &str| report["rtt"][key].as_f64().unwrap();
        assert_eq!(report["rtt"]["n"], 20);
        assert!(rtt("min") > 0.0 && rtt("min") <= rtt("p50") && rtt("p50") <= rtt("max"));
    }
}

#[test]
fn unanswered_pings_are_lost() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = silent.local_addr().unwrap().to_string();
    let ping = ["udp-ping", "--to", &to, "--count", "3", "--interval", "1ms"];
    let report = run(&[&ping[..], &["--timeout", "20ms"]].concat());
    assert_eq!((&report["lost"], &report["rtt"]), (&3.into(), &Value::Null));
}

#[test]
fn trains_arrive_complete_with_the_gaps_of_the_source() {
    let mut sink = ServerTool::start(&["train-sink", "--listen", "127.0.0.1:0", "--sessions", "2"]);
    let address = sink.address.clone();
    let to = ["train-source", "--to", &address, "--trains", "3", "--interval", "1ms"];
    let more = ["--packets", "10", "--size", "1000", "--gap", "1ms", "--settle", "50ms"];
    let report = run(&[&to[..], &more[..]].concat());
    assert_eq!(sink.line(), report);
    assert_eq!((&report["complete"], &report["host_drops"]), (&3.into(), &0.into()));
    // A gap of 1 ms is a lower bound: no host sends early.
    let sent = report["sent_rate"]["max"].as_f64().unwrap();
    assert!(sent > 0.0 && sent <= 8.1e6, "sent at {sent} bit/s");
    let burst = run(&[&to[..], &["--packets", "10", "--settle", "50ms"]].concat());
    assert_eq!(burst["trains"].as_array().unwrap().len(), 3);
    assert!(sink.end());
}

#[test]
fn a_blast_over_loopback_loses_nothing() {
    let sink = ServerTool::start(&["train-sink", "--listen", "[::1]:0", "--sessions", "1"]);
    let blast = ["udp-blast", "--to", &sink.address, "--rate", "8 Mbit/s", "--size", "500"];
    let report = run(&[&blast[..], &["--for", "250ms", "--settle", "50ms"]].concat());
    for (key, value) in [("sent", 500), ("received", 500), ("lost", 0), ("host_drops", 0)] {
        assert_eq!(report[key], value, "{key}");
    }
}

#[test]
fn a_blast_through_a_lossy_relay_reports_exactly_its_losses() {
    let sink = ServerTool::start(&["train-sink", "--listen", "127.0.0.1:0", "--sessions", "1"]);
    // Drops packets 3, 4, 5 of each 50, and duplicates packet 10.
    let fate = |n: u64| match n % 50 {
        3..=5 => 0,
        10 => 2,
        _ => 1,
    };
    let relay = relay(&sink.address, fate);
    let blast = ["udp-blast", "--to", &relay, "--rate", "8 Mbit/s", "--size", "500"];
    let report = run(&[&blast[..], &["--for", "250ms", "--settle", "100ms"]].concat());
    let expected = [("sent", 500), ("lost", 30), ("bursts", 10), ("duplicated", 10)];
    for (key, value) in expected {
        assert_eq!(report[key], value, "{key} in {report}");
    }
    let lengths = BTreeMap::from([("3", 10)]);
    assert_eq!(report["burst_lengths"], serde_json::to_value(lengths).unwrap());
    assert_eq!(report["mean_burst"]["value"], 3.0);
}

/// Starts a relay that forwards the control connection and the datagrams to `to`, each datagram `fate(number)` times,
/// until the test process ends. Returns its address.
fn relay(to: &str, fate: fn(u64) -> u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let inlet = UdpSocket::bind(address).unwrap();
    let outlet = UdpSocket::bind("127.0.0.1:0").unwrap();
    outlet.connect(to).unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2048];
        for number in 0.. {
            let n = inlet.recv(&mut buffer).unwrap();
            (0..fate(number)).for_each(|_| assert_eq!(outlet.send(&buffer[..n]).unwrap(), n));
        }
    });
    let to = to.to_owned();
    thread::spawn(move || {
        let (near, far) = (listener.accept().unwrap().0, TcpStream::connect(to).unwrap());
        let (back, forth) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        thread::spawn(move || copy(far, back));
        copy(near, forth);
    });
    address.to_string()
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        to.write_all(&buffer[..n]).unwrap();
    }
}

#[test]
fn a_rate_below_one_packet_is_rejected() {
    let blast = ["udp-blast", "--to", "127.0.0.1:9", "--rate", "1 bit/s", "--for", "1s"];
    assert!(run_failing(&blast).contains("no packet is due"));
}
