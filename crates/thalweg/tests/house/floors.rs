//! An arrow of imports only ever runs downwards.

use serde_json::Value;
use std::process::Command;

/// The floor of the harness, which alone imports the rooms beside the product.
const TOP: u8 = 7;

/// The floors of the product (ARCHITECTURE.md). A room imports from floors below;
/// on its own floor only what [`SIDEWAYS`] names. Cargo itself refuses cycles.
const FLOORS: &[(&str, u8)] = &[
    ("units", 0),
    ("console", 0),
    ("bond", 1),
    ("fountain", 1),
    ("measure", 1),
    ("plan", 1),
    ("wire", 2),
    ("net", 3),
    ("node", 4),
    ("oracle", 4),
    ("probe", 5),
    ("thalweg", 6),
    ("bench", TOP),
];

/// Arrows within one floor.
const SIDEWAYS: &[(&str, &str)] = &[("plan", "measure")];

/// The rooms beside the product and all that they may import. Below the harness
/// they are imported by tests alone.
const BESIDE: &[(&str, &[&str])] = &[
    ("lab", &["units", "console", "sim"]),
    ("experiment", &["units", "console", "measure", "plan", "lab"]),
    ("sim", &["units", "measure", "plan"]),
];

/// One import: who, whom, and whether only tests make it.
struct Arrow {
    from: String,
    to: String,
    dev: bool,
}

#[test]
fn imports_run_downwards() {
    let arrows = arrows();
    assert!(arrows.len() >= 10, "cargo metadata showed only {} imports", arrows.len());
    let wrong: Vec<String> = arrows
        .iter()
        .filter(|arrow| !allowed(arrow))
        .map(|arrow| format!("{} → {}", arrow.from, arrow.to))
        .collect();
    assert!(wrong.is_empty(), "imports that do not run downwards: {}", wrong.join(", "));
}

#[test]
fn every_room_has_a_floor() {
    for package in packages() {
        let room = room(&package["name"]).expect("a room of ours");
        let known = floor(&room).is_some() || beside(&room).is_some();
        assert!(
            known,
            "the room '{room}' is on no floor: place it in this test and ARCHITECTURE.md"
        );
    }
}

#[test]
fn an_arrow_upwards_would_be_seen() {
    let arrow = |from: &str, to: &str, dev| Arrow { from: from.into(), to: to.into(), dev };
    assert!(!allowed(&arrow("plan", "net", false)));
    assert!(!allowed(&arrow("measure", "plan", false)));
    assert!(!allowed(&arrow("node", "lab", false)));
    assert!(!allowed(&arrow("lab", "node", false)));
    assert!(!allowed(&arrow("node", "thalweg", true)));
    assert!(allowed(&arrow("node", "lab", true)));
    assert!(!allowed(&arrow("thalweg", "lab", false)));
    assert!(allowed(&arrow("thalweg", "lab", true)));
    assert!(allowed(&arrow("bench", "lab", false)));
    assert!(!allowed(&arrow("thalweg", "bench", true)));
}

fn allowed(arrow: &Arrow) -> bool {
    let (from, to) = (arrow.from.as_str(), arrow.to.as_str());
    if let Some(may) = beside(from) {
        return may.contains(&to);
    }
    match (floor(from), floor(to)) {
        (Some(own), Some(other)) => other < own || SIDEWAYS.contains(&(from, to)),
        // To a room beside: the harness starts them, tests use them.
        (Some(own), None) => own == TOP || arrow.dev,
        (None, _) => false,
    }
}

fn floor(room: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == room).map(|(_, floor)| *floor)
}

fn beside(room: &str) -> Option<&'static [&'static str]> {
    BESIDE.iter().find(|(name, _)| *name == room).map(|(_, may)| *may)
}

/// `thalweg-net` is the room `net`; the binary's package is the room `thalweg`.
fn room(package: &Value) -> Option<String> {
    let name = package.as_str()?;
    if name == "thalweg" {
        Some(name.into())
    } else {
        name.strip_prefix("thalweg-").map(Into::into)
    }
}

fn arrows() -> Vec<Arrow> {
    let mut arrows = Vec::new();
    for package in packages() {
        let from = room(&package["name"]).expect("a room of ours");
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let dev = dependency["kind"] == "dev";
            if let Some(to) = room(&dependency["name"]) {
                arrows.push(Arrow { from: from.clone(), to, dev });
            }
        }
    }
    arrows
}

/// The workspace's packages, as cargo reads them.
pub fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(super::tree::root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    metadata["packages"].as_array().expect("packages").clone()
}
