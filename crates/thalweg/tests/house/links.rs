//! Links between documents lead somewhere, and the book contains every page of `docs/`.

use super::tree;
use std::{collections::BTreeSet, fs, path::Path};

/// The documents whose links are checked.
const TEXTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "REFERENCES.md",
    "CHANGELOG.md",
    "docs",
    "experiments/reports",
];

#[test]
fn links_in_the_texts_lead_to_files_and_headings() {
    let mut broken = Vec::new();
    let mut seen = 0;
    for text in tree::sources(TEXTS).iter().filter(|source| source.is(&["md"])) {
        for target in links(&text.text) {
            seen += 1;
            let fault = fault(&text.path, &target);
            broken.extend(fault.map(|why| format!("{}: ({target}): {why}", text.path)));
        }
    }
    assert!(seen > 500, "only {seen} links were found");
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

/// Why a link of the document at `path` is broken.
fn fault(path: &str, target: &str) -> Option<String> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let root = tree::root();
    let from = root.join(path);
    let to = match file {
        "" => from,
        file => from.parent().expect("a directory").join(file),
    };
    if !to.exists() {
        return Some("there is no such file".to_owned());
    }
    if heading.is_empty() || to.extension().is_none_or(|extension| extension != "md") {
        return None;
    }
    let there = headings(&fs::read_to_string(&to).unwrap_or_default());
    (!there.contains(heading)).then(|| "there is no such heading".to_owned())
}

/// The targets of a text's links within the project, without code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        // What is between backquotes is no link; a link's text may be.
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            let Some((target, _)) = rest.split_once(')') else { continue };
            let is_code = line[..at].matches('`').count() % 2 == 1;
            let is_outside = target.contains("://") || target.starts_with("mailto:");
            if !is_code && !is_outside {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// The anchors of a text's headings, as forges and mdBook make them.
fn headings(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let name = line.trim_start_matches('#').trim();
        let kept = name.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String = kept.flat_map(char::to_lowercase).collect();
        let anchor = anchor.replace(' ', "-");
        let repeated = (1..).map(|n| format!("{anchor}-{n}"));
        let mut names = [anchor.clone()].into_iter().chain(repeated);
        found.extend(names.find(|name| !found.contains(name)));
    }
    found
}

/// The lines outside of listings.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_listing = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_listing ^= is_fence;
        !is_listing && !is_fence
    })
}

#[test]
fn a_broken_link_is_detected() {
    let text = "# A `b`: c\n[x](d.md#e) and `[y](f)`\n```\n[z](g)\n# no\n```\n[w](https://h)\n# A `b`: c\n";
    assert_eq!(links(text), ["d.md#e"]);
    assert_eq!(headings(text), BTreeSet::from(["a-b-c".to_owned(), "a-b-c-1".to_owned()]));
    assert_eq!(fault("docs/mesh.md", "relay.md#quotas"), None);
    assert!(fault("docs/mesh.md", "relay.md#quotass").is_some());
    assert!(fault("docs/mesh.md", "relai.md").is_some());
}

#[test]
fn the_book_contains_every_page_once() {
    let summary = fs::read_to_string(tree::root().join("docs/SUMMARY.md")).expect("a summary");
    let mut listed = links(&summary);
    listed.sort();
    let pages = tree::sources(&["docs"]);
    let pages = pages.iter().filter_map(|source| source.path.strip_prefix("docs/"));
    let is_page = |path: &&str| path.ends_with(".md") && *path != "SUMMARY.md";
    let mut pages: Vec<&str> = pages.filter(is_page).collect();
    pages.sort_unstable();
    let missing: Vec<&&str> =
        pages.iter().filter(|page| !listed.iter().any(|l| l == *page)).collect();
    assert!(missing.is_empty(), "not in docs/SUMMARY.md (scripts/book --write): {missing:?}");
    assert_eq!(listed, pages, "docs/SUMMARY.md names what is no page, or a page twice");
}

/// Each threat in the security model names tests that exist.
#[test]
fn tests_of_the_threat_table_exist() {
    let root = tree::root();
    let text = fs::read_to_string(root.join("docs/security.md")).expect("the page");
    let table = text.split("## Threats").nth(1).and_then(|rest| rest.split("\n## ").next());
    let rows = table.expect("a table").lines().filter(|line| line.starts_with("| "));
    let sources = tree::sources(&["crates"]);
    let mut wrong = Vec::new();
    let mut seen = 0;
    for row in rows.skip(1) {
        let cell = row.split('|').nth(3).unwrap_or_default();
        let names: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            wrong.push(format!("no test: {row}"));
        }
        for name in names {
            seen += 1;
            let function = format!("fn {name}(");
            let is_there = match name.contains('/') {
                true => Path::new(&root).join(name).exists(),
                false => sources.iter().any(|source| source.text.contains(&function)),
            };
            if !is_there {
                wrong.push(format!("there is no {name}"));
            }
        }
    }
    assert!(seen >= 25, "only {seen} tests are named");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
