//! Each case in the tables of docs/faults has tests, and the tests exist.

use super::tree;
use std::{collections::BTreeSet, fs};

#[test]
fn every_fault_of_a_relay_has_tests_that_exist() {
    check("docs/faults/relay.md", (25..=37).collect());
}

#[test]
fn every_fault_of_a_download_has_tests_that_exist() {
    check("docs/faults/get.md", (1..=24).chain(41..=44).collect());
}

#[test]
fn every_fault_of_a_cast_has_tests_that_exist() {
    check("docs/faults/cast.md", (1..=12).collect());
}

#[test]
fn every_fault_of_a_bond_has_tests_that_exist() {
    check("docs/faults/bond.md", (1..=16).collect());
}

#[test]
fn every_fault_of_a_stream_has_tests_that_exist() {
    check("docs/faults/stream.md", (1..=30).collect());
}

/// Checks that the table of the document has these case numbers; those of the first two documents form one list.
fn check(document: &str, cases: BTreeSet<u32>) {
    let text = fs::read_to_string(tree::root().join(document)).expect("the list");
    let rows: Vec<_> = text.lines().filter_map(row).collect();
    let found: BTreeSet<u32> = rows.iter().map(|(case, _)| *case).collect();
    assert_eq!(found, cases, "the cases of the table in {document}");
    for (case, tests) in rows {
        assert!(!tests.is_empty(), "case {case} names no test");
        for (file, name) in tests {
            let source = fs::read_to_string(tree::root().join(file));
            let source = source.unwrap_or_else(|e| panic!("case {case}: {file}: {e}"));
            let test = format!("fn {name}(");
            assert!(source.contains(&test), "case {case}: no test `{name}` in {file}");
        }
    }
}

/// Parses a row `| 25 … | `crates/file.rs` `name` … |` into the case and its tests, as file and name.
fn row(line: &str) -> Option<(u32, Vec<(&str, &str)>)> {
    let (case, rest) = line.strip_prefix("| ")?.split_once(' ')?;
    let code = rest.split('|').nth(1)?.split('`').skip(1).step_by(2);
    let mut tests = Vec::new();
    let mut file = None;
    for word in code {
        match word.ends_with(".rs") {
            true => file = Some(word),
            false => tests.extend(file.map(|file| (file, word))),
        }
    }
    Some((case.parse().ok()?, tests))
}

#[test]
fn a_row_is_parsed() {
    let line = "| 7 Name | `crates/a.rs` `one`, `two`; `crates/b.rs` `three` | seen `so` |";
    let tests = vec![("crates/a.rs", "one"), ("crates/a.rs", "two"), ("crates/b.rs", "three")];
    assert_eq!(row(line), Some((7, tests)));
    assert_eq!(row("| Case | Tests | Observed |"), None);
}
