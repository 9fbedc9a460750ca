//! The probe service, used by an example program: `examples/capacity.py`, in an emulated Internet.

use crate::{
    host::{Host, text, until},
    in_lab::{self, Running, lab, within},
};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

const NETWORK: &str = r#"
    [host.nyc]
    [host.fra]
    [link.way]
    rate = "10 Mbit/s"
    delay = "10 ms"
    queue = "50 kB"
    [[path]]
    from = "nyc"
    to = "fra"
    links = ["way"]
"#;

/// The example, run by this host's owner.
fn example(host: &Host, args: &[&str]) -> Command {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/capacity.py");
    let mut python = Command::new("python3");
    python.arg("-B").arg(file).args(args).env("THALWEG_STATE", host.state());
    python
}

#[test]
fn the_example_estimates_capacity_and_its_receiver_sees_each_probe() {
    let Some(lab) = lab(NETWORK) else { return };
    let (fra, _fra_runs) = in_lab::founder(&lab, "");
    let (nyc, _nyc_runs) = in_lab::relay(&lab, &fra, "nyc", "");
    for host in [&fra, &nyc] {
        until("the socket is there", || host.state().join("probe.sock").exists());
    }
    let mut receiver = within(&lab, "fra", &example(&fra, &["--receive", "--from", "nyc"]));
    let mut receiver = Running(receiver.stderr(Stdio::inherit()).spawn().unwrap());
    let mut seen = BufReader::new(receiver.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(seen.next().unwrap(), r#"{"receiving": {}}"#);
    let estimate = || {
        let args = ["fra", "--pairs", "20", "--accept-busy"];
        let output = within(&lab, "nyc", &example(&nyc, &args)).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let (first, second) = (estimate(), estimate());
    println!("{first}\n{second}");
    for found in [&first, &second] {
        assert_eq!(found["pairs"], 20, "{found}");
        let is_near = (found["mbps"].as_f64().unwrap() / 10.0 - 1.0).abs() < 0.25;
        let doubts = found["doubts"].as_array().unwrap();
        assert!(is_near || !doubts.is_empty(), "{found}, and 10 Mbit/s is true");
    }
    let probe: Value = serde_json::from_str(&seen.next().unwrap()).unwrap();
    let probe = &probe["probe"];
    assert_eq!((&probe["from"], &probe["size"]), (&"nyc".into(), &1472.into()), "{probe}");
    // `cap1`, and the number of the pair.
    assert!(probe["header"].as_str().unwrap().starts_with("63617031"), "{probe}");
    assert!(
        probe["sent_ns"].as_u64() > Some(0) && probe["arrived_ns"].as_u64() > Some(0),
        "{probe}"
    );
}

#[test]
fn the_example_reports_a_refusal_of_the_node() {
    let fra = Host::founder();
    let _runs = fra.start();
    until("the socket is there", || fra.state().join("probe.sock").exists());
    // The node calibrates itself before any train is requested.
    let calibration = || fra.json(&["status", "--json"])["calibration"].clone();
    until("it is calibrated", || calibration()["gap_error_ns"][1].is_u64());
    assert!(calibration()["is_valid"].is_boolean() && calibration()["honest_bps"].is_u64());
    let output = example(&fra, &["nobody"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nobody"), "{}", text(&output.stderr));
}

#[test]
fn the_example_names_a_missing_socket() {
    let dir = tempfile::TempDir::new().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/capacity.py");
    let mut python = Command::new("python3");
    python.arg("-B").arg(file).arg("fra").env("THALWEG_STATE", dir.path());
    let output = python.output().unwrap();
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("probe.sock"), "{said}");
    assert!(!said.contains("Traceback"), "{said}");
}
