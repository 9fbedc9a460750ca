//! Pure code takes time and randomness as arguments. Clippy enforces that for whole crates (their `clippy.toml`). These
//! tests cover what clippy cannot see: the imports of the crates, that their lists stay equal, and pure modules of
//! crates that do I/O.

use super::floors;
use super::tree;

/// Crates without clock, socket, file, global random generator or runtime.
const PURE_CRATES: &[&str] =
    &["units", "bond", "fountain", "measure", "media", "plan", "wire", "sim"];

/// Pure modules inside crates that do I/O.
const PURE_MODULES: &[&str] = &[
    "crates/lab/src/emu",
    "crates/doctor/src/checks",
    "crates/lab/src/topology",
    "crates/uplinks/src/interfaces/bill.rs",
    "crates/uplinks/src/interfaces/caps.rs",
    "crates/uplinks/src/interfaces/doubt.rs",
    "crates/uplinks/src/interfaces/estimate.rs",
    "crates/uplinks/src/interfaces/retransmissions.rs",
    "crates/uplinks/src/interfaces/table.rs",
    "crates/uplinks/src/interfaces/table",
    "crates/uplinks/src/interfaces/traffic.rs",
];

/// Crates that contain a clock, a socket, a file, a runtime or a global random generator.
const IMPURE_CRATES: &[&str] = &[
    "tokio",
    "mio",
    "hyper",
    "hyper-util",
    "rustix",
    "libc",
    "nix",
    "socket2",
    "rand",
    "getrandom",
    "fastrand",
    "tempfile",
];

/// Names that pure modules must not contain.
const IMPURE_NAMES: &[&str] = &[
    "Instant",
    "SystemTime",
    "std::fs",
    "std::thread",
    "std::process",
    "std::env",
    "std::os",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "HashMap",
    "HashSet",
    "tokio",
    "rustix",
    "libc",
    "nix::",
];

#[test]
fn pure_crates_import_nothing_impure() {
    for package in floors::packages() {
        let name =
            package["name"].as_str().expect("a name").trim_start_matches("thalweg-").to_owned();
        if !PURE_CRATES.contains(&name.as_str()) {
            continue;
        }
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let import = dependency["name"].as_str().expect("a name");
            let shipped = dependency["kind"] != "dev";
            assert!(
                !(shipped && IMPURE_CRATES.contains(&import)),
                "{name} is pure but imports {import}"
            );
        }
    }
}

#[test]
fn pure_crates_have_the_same_list_of_forbidden_calls() {
    let list = |room: &&str| tree::sources(&[&format!("crates/{room}/clippy.toml")]);
    let lists: Vec<tree::Source> = PURE_CRATES.iter().flat_map(list).collect();
    for list in &lists[1..] {
        assert_eq!(list.text, lists[0].text, "{} differs from {}", list.path, lists[0].path);
    }
    assert!(lists[0].text.contains("std::time::Instant::now"), "the list forbids no clock");
}

#[test]
fn pure_modules_name_nothing_impure() {
    for source in tree::sources(PURE_MODULES) {
        for (number, line) in source.lines() {
            let code = line.split("//").next().unwrap_or_default();
            let named = IMPURE_NAMES.iter().find(|name| names(code, name));
            assert!(
                named.is_none(),
                "{}:{number}: pure code names {}",
                source.path,
                named.unwrap()
            );
        }
    }
}

#[test]
fn a_clock_is_detected() {
    assert!(names("let t = Instant::now();", "Instant"));
    assert!(names("use std::{time::Instant};", "Instant"));
    assert!(!names("let instant = InstantLike;", "Instant"));
}

/// Whether the code contains the name as a whole word.
fn names(code: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        let after = code[at + name.len()..].chars().next();
        let begins = before.is_none_or(|c| !word(c));
        let ends = name.ends_with(':') || after.is_none_or(|c| !word(c));
        begins && ends
    })
}
