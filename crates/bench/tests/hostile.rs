//! `thalweg-bench load hostile`: a node under attack serves others within bounded memory and descriptors.
//!
//! Times are not tested here but in the experiment `members-hostile`, and the number of a member's channels in the
//! tests of `thalweg-node`: how many this attacker opens in two seconds depends on the machine.

use serde_json::Value;
use std::process::Command;

/// The additional memory that a node may use under attack, MiB; the same in a debug build.
const MEMORY: f64 = 256.0;

/// The additional descriptors: handshakes of eight addresses, channels of strangers, and the limit of one member.
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

/// The number of channels that an attack could not open or that the node closed.
fn lost(report: &Value, attack: &str) -> f64 {
    ["refused", "closed"].map(|what| number(report, &format!("{what}_{attack}"))).iter().sum()
}

/// The attacks of the test: the short list.
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
    // The node does not read a long question of a stranger.
    assert!(lost(&report, "stranger_submit_largest") > 0.0, "{report}");
    for attack in ["member_object_costliest", "stranger_datagrams_random"] {
        assert!(number(&report, &format!("sent_{attack}")) > 0.0, "{attack}: {report}");
    }
}
