//! `thalweg-bench load crowd`: small runs of its measurements have plausible results.

use serde_json::Value;
use std::process::Command;

fn crowd(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg-bench"));
    let output = command.args(["load", "crowd"]).args(arguments).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(report: &Value, name: &str) -> f64 {
    report["metrics"][name]["value"].as_f64().unwrap_or_else(|| panic!("no {name} in {report}"))
}

#[test]
fn a_few_receivers_get_the_object_and_the_counts_are_plausible() {
    let report = crowd(&["scale", "--receivers", "4", "--size", "3 MiB"]);
    assert_eq!(number(&report, "receivers_done"), 4.0);
    assert!(number(&report, "objects_sent") >= 1.0 && number(&report, "objects_sent") <= 4.1);
    assert!(number(&report, "depth") >= 1.0 && number(&report, "beyond") < 10.0, "{report}");
}

#[test]
fn a_relay_serves_a_finished_object_and_an_arriving_one() {
    let report = crowd(&["relay", "--size", "4 MiB"]);
    for what in ["receive", "serve", "relay"] {
        assert!(number(&report, &format!("{what}_rate")) > 0.0, "{report}");
    }
}
