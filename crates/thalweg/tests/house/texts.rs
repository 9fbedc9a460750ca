//! Documents and comments refer only to things that exist.

use super::tree;
use std::collections::BTreeSet;

/// The documents whose paths and links are checked.
const TEXTS: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs"];

/// The beginnings of paths from the root.
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

/// Help, messages and settings refer to pages of the documents.
#[test]
fn pages_in_sources_and_settings_exist() {
    let root = tree::root();
    let mut missing = Vec::new();
    let sources = tree::sources(&["crates", "experiments", "examples", "deploy", "Cargo.toml"]);
    let sources = sources.iter().filter(|source| source.is(&["rs", "toml"]));
    // The examples in this file name pages that do not exist.
    for source in sources.filter(|source| !source.path.ends_with("house/texts.rs")) {
        for (number, line) in source.lines() {
            for page in pages(line) {
                if !root.join(&page).exists() {
                    missing.push(format!("{}:{number}: {page}", source.path));
                }
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

/// The pages below `docs/` in one line, wherever they are in a word.
fn pages(line: &str) -> Vec<String> {
    let ends = |c: char| !c.is_ascii_alphanumeric() && !"/_-.".contains(c);
    let rest = line.match_indices("docs/").map(|(at, _)| &line[at..]);
    let words = rest.map(|rest| rest.split(ends).next().unwrap_or_default().trim_end_matches('.'));
    words.filter(|page| page.ends_with(".md")).map(str::to_owned).collect()
}

#[test]
fn pages_are_found_in_a_line() {
    assert_eq!(
        pages("/// (TOML or CSV): docs/gather.md#rates, docs/cast.md."),
        ["docs/gather.md", "docs/cast.md"]
    );
    assert_eq!(pages("../../../docs/decisions/0001-x.md and docs/"), ["docs/decisions/0001-x.md"]);
}

#[test]
fn references_lists_exactly_the_named_rfcs() {
    let listed = named(&["REFERENCES.md"]);
    let named = named(&["crates", "docs", "ARCHITECTURE.md"]);
    assert!(!named.is_empty(), "nothing names an RFC");
    let missing: Vec<&String> = named.difference(&listed).collect();
    assert!(missing.is_empty(), "not in REFERENCES.md: {missing:?}");
    let stale: Vec<&String> = listed.difference(&named).collect();
    assert!(stale.is_empty(), "in REFERENCES.md, but named nowhere: {stale:?}");
}

/// Every decision that a comment refers to has a record.
#[test]
fn decisions_in_the_sources_exist() {
    let names = std::fs::read_dir(tree::root().join("docs/decisions")).expect("records");
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let there: BTreeSet<String> =
        names.filter_map(|name| name.get(..4).map(str::to_owned)).collect();
    let (mut missing, mut seen) = (Vec::new(), 0);
    let sources = tree::sources(&["crates", "experiments", "docs", "README.md", "ARCHITECTURE.md"]);
    for source in sources.iter().filter(|source| !source.path.ends_with("house/texts.rs")) {
        for (number, line) in source.lines() {
            for decision in decisions(line) {
                seen += 1;
                if !there.contains(&decision) {
                    missing.push(format!("{}:{number}: decision {decision}", source.path));
                }
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
    assert!(seen >= 20, "only {seen} references to decisions");
}

/// The numbers after the word `decision` in one line.
fn decisions(line: &str) -> Vec<String> {
    let after = line.match_indices("decision ").map(|(at, word)| &line[at + word.len()..]);
    let digits =
        after.map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    digits.filter(|number| number.len() == 4).collect()
}

#[test]
fn decisions_are_found_in_a_line() {
    assert_eq!(decisions("// One timer (decision 0018); see decision 9."), ["0018"]);
}

/// The RFCs that files below these paths name, without the examples in this file.
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

/// The paths from the root in one line, without those that contain a placeholder.
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
