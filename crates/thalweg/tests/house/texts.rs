//! The texts speak of what exists.

use super::tree;
use std::collections::BTreeSet;

/// Documents whose paths and links are checked.
const TEXTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs"];

/// Beginnings of paths from the root.
const ROOTS: &[&str] = &["crates/", "docs/", "experiments/", "scripts/", ".ci/"];

#[test]
fn paths_in_the_texts_exist() {
    let root = tree::root();
    let mut missing = Vec::new();
    for text in tree::sources(TEXTS) {
        for (number, line) in text.lines() {
            for path in paths(line) {
                if !root.join(&path).exists() {
                    missing.push(format!("{}:{number}: {path}", text.path));
                }
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

#[test]
fn every_rfc_named_in_the_code_has_a_reference() {
    let references = tree::sources(&["REFERENCES.md"]).remove(0).text;
    let named: BTreeSet<String> =
        tree::sources(&["crates"]).iter().flat_map(|source| rfcs(&source.text)).collect();
    assert!(!named.is_empty(), "the code names no RFC at all");
    let missing: Vec<&String> = named.iter().filter(|rfc| !references.contains(*rfc)).collect();
    assert!(missing.is_empty(), "not in REFERENCES.md: {missing:?}");
}

#[test]
fn paths_are_found_in_a_line() {
    let line = "see `crates/net/src/dialer.rs`, [the lab](docs/lab.md) and `experiments/NAME.toml`";
    assert_eq!(paths(line), ["crates/net/src/dialer.rs", "docs/lab.md"]);
    assert_eq!(rfcs("RFC 9002 §5.3, RFC 1928."), ["RFC 9002", "RFC 1928"]);
}

/// Paths from the root in one line; those with a placeholder are left out.
fn paths(line: &str) -> Vec<String> {
    line.split(|c: char| c.is_whitespace() || "`()[],;|<>\"".contains(c))
        .filter(|word| ROOTS.iter().any(|root| word.starts_with(root)))
        .filter(|word| !word.contains(['*', '{', '…']) && !word.contains("NAME"))
        .map(|word| word.split(['#', ':']).next().unwrap_or(word).trim_end_matches('.').to_owned())
        .collect()
}

fn rfcs(text: &str) -> Vec<String> {
    let digits = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    text.match_indices("RFC ")
        .map(|(at, _)| digits(&text[at + 4..]))
        .filter(|number| number.len() >= 3)
        .map(|number| format!("RFC {number}"))
        .collect()
}
