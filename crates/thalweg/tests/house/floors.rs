//! A crate imports only from crates on lower floors.

use serde_json::Value;
use std::process::Command;

/// The floors (ARCHITECTURE.md). A crate imports from floors below, never from its own. Cargo itself refuses cycles.
const FLOORS: &[(&str, u8)] = &[
    ("units", 1),
    ("console", 1),
    ("bond", 2),
    ("fountain", 2),
    ("measure", 2),
    ("media", 2),
    ("plan", 3),
    ("wire", 3),
    ("base", 4),
    ("sim", 4),
    ("net", 5),
    ("part", 5),
    ("jobs", 5),
    ("lab", 5),
    ("jobs", 5),
    ("mesh", 6),
    ("oracle", 6),
    ("experiment", 6),
    ("paths", 7),
    ("uplinks", 7),
    ("relay", 7),
    ("files", 7),
    ("dropbox", 7),
    ("doctor", 7),
    ("get", 8),
    ("gather", 8),
    ("cast", 8),
    ("probe", 8),
    ("stream", 8),
    ("proxy", 9),
    ("node", 9),
    ("thalweg", 10),
    ("bench", 11),
    ("fuzz", 10),
];

/// The harness: crates of the product import these only in tests.
const HARNESS: &[&str] = &["lab", "sim", "experiment", "bench", "fuzz"];

/// An import: the importing crate, the imported one, and whether only tests need it.
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
fn every_crate_has_a_floor() {
    for package in packages() {
        let room = room(&package["name"]).expect("a crate of ours");
        assert!(
            floor(&room).is_some(),
            "the crate '{room}' is on no floor: place it in this test and ARCHITECTURE.md"
        );
    }
}

#[test]
fn an_upward_import_is_detected() {
    let arrow = |from: &str, to: &str, dev| Arrow { from: from.into(), to: to.into(), dev };
    assert!(!allowed(&arrow("plan", "net", false)));
    assert!(!allowed(&arrow("measure", "plan", false)));
    assert!(!allowed(&arrow("get", "gather", false)));
    assert!(!allowed(&arrow("node", "lab", false)));
    assert!(!allowed(&arrow("thalweg", "lab", false)));
    assert!(!allowed(&arrow("node", "thalweg", true)));
    assert!(!allowed(&arrow("lab", "node", false)));
    assert!(allowed(&arrow("node", "lab", true)));
    assert!(allowed(&arrow("bench", "lab", false)));
    assert!(allowed(&arrow("get", "paths", false)));
}

/// Tests obey the floors, too, except that any may start a lab: tests that start daemons belong to `node`.
fn allowed(arrow: &Arrow) -> bool {
    let harness = |name: &str| HARNESS.contains(&name);
    if harness(&arrow.to) && !harness(&arrow.from) && !arrow.dev {
        return false;
    }
    if arrow.dev && arrow.to == "lab" && !harness(&arrow.from) {
        return true;
    }
    match (floor(&arrow.from), floor(&arrow.to)) {
        (Some(own), Some(other)) => other < own,
        _ => false,
    }
}

fn floor(room: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == room).map(|(_, floor)| *floor)
}

/// The name without the prefix: `thalweg-net` is the crate `net`; the binary's package is `thalweg`.
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

/// The packages of the workspace, as cargo reports them.
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
