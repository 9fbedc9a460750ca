//! `thalweg-bench load hostile`: a node under attack serves others, within bounded memory and descriptors.
//!
//! No times are judged here: the experiment `members-hostile` does that.

use serde_json::Value;
use std::process::Command;

/// MiB that a node may take more under attack; a debug build takes no more than another one.
const MEMORY: f64 = 256.0;

/// Handshakes of eight addresses, channels of strangers, and what one member may have.
const DESCRIPTORS: f64 = 3328.0;

fn hostile(attacks: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg-bench"));
    command.args(["load", "hostile", "run", "--attacks", attacks, "--time", "2s", "--idle", "3"]);
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    eprintln!("{}", String::from_utf8_lossy(&output.stderr));
    report
}

fn number(report: &Value, name: &str) -> f64 {
    report["metrics"][name]["value"].as_f64().unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// Channels that the node has closed, which the attacker may not have noticed at the end.
const CLOSING: f64 = 16.0;

/// Channels that an attack could not open, or that the node closed.
fn lost(report: &Value, attack: &str) -> f64 {
    ["refused", "closed"].map(|what| number(report, &format!("{what}_{attack}"))).iter().sum()
}

/// The short list.
const ATTACKS: &str = "member_api_costliest,member_probe_costliest,member_relay_idle,member_object_largest,member_object_costliest,\
                       member_bond_idle,member_cast_random,stranger_join_slow,stranger_submit_largest,\
                       stranger_handshake_costliest,stranger_datagrams_random";

#[test]
fn a_node_under_attack_serves_others_within_its_bounds() {
    let report = hostile(ATTACKS);
    assert_eq!(number(&report, "attacks"), 11.0);
    assert_eq!(number(&report, "failed"), 0.0, "{report}");
    assert!(number(&report, "worst_memory") <= MEMORY, "{report}");
    assert!(number(&report, "worst_descriptors") <= DESCRIPTORS, "{report}");
    // A stranger's long question is not read.
    assert!(lost(&report, "stranger_submit_largest") > 0.0, "{report}");
    // A member with more channels than it may have loses some; on a busy machine it may not come so far.
    for (attack, places) in [("member_bond_idle", 160.0), ("member_object_largest", 192.0)] {
        let opened = number(&report, &format!("opened_{attack}"));
        let is_bounded = lost(&report, attack) > 0.0 || opened <= places + CLOSING;
        assert!(is_bounded, "{attack}: nothing was refused: {report}");
    }
    for attack in ["member_object_costliest", "stranger_datagrams_random"] {
        assert!(number(&report, &format!("sent_{attack}")) > 0.0, "{attack}: {report}");
    }
}
