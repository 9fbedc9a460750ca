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
fn references_are_those_that_are_named() {
    let listed = named(&["REFERENCES.md"]);
    let named = named(&["crates", "docs", "ARCHITECTURE.md"]);
    assert!(!named.is_empty(), "nothing names an RFC");
    let missing: Vec<&String> = named.difference(&listed).collect();
    assert!(missing.is_empty(), "not in REFERENCES.md: {missing:?}");
    let stale: Vec<&String> = listed.difference(&named).collect();
    assert!(stale.is_empty(), "in REFERENCES.md, but named nowhere: {stale:?}");
}

/// The RFCs that files below these paths name; this test's own examples do not count.
fn named(below: &[&str]) -> BTreeSet<String> {
    let sources = tree::sources(below);
    let sources = sources.iter().filter(|source| !source.path.ends_with("house/texts.rs"));
    sources.flat_map(|source| rfcs(&source.text)).collect()
}

#[test]
fn paths_are_found_in_a_line() {
    let line = "see `crates/net/src/route.rs`, [the lab](docs/lab.md) and `experiments/NAME.toml`";
    assert_eq!(paths(line), ["crates/net/src/route.rs", "docs/lab.md"]);
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
