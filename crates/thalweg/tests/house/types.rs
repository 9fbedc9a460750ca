//! The methods of a type are in one file, or in few, so that readers find them.

use super::tree::{self, without_tests};
use std::collections::{BTreeMap, BTreeSet};

/// The most files of a crate that may contain methods of one type.
const MOST: usize = 3;

/// Types, with their crates, that are spread over more files, and the reasons.
const SPREAD: &[(&str, &str, &str)] = &[
    (
        "cast",
        "ServiceState",
        "a receiver's service: one file each for admission, answers and clearing up",
    ),
    ("files", "Remote", "the fetching end: one file for each request of the protocol"),
    (
        "get",
        "Ranged",
        "the shell of a selection: one file for each kind of its actions and reports",
    ),
];

/// Crate, type, and the file that defines it.
type Key = (String, String, String);

#[test]
fn a_type_and_its_methods_are_in_few_files() {
    let spread: Vec<String> = spread()
        .into_iter()
        .filter(|((krate, name, _), _)| !is_excepted(krate, name))
        .map(|((krate, name, _), files)| format!("{krate}: {name} in {files:?}"))
        .collect();
    let advice = "merge them; if that is too long for a file, a part of its fields and methods is a type of its own";
    assert!(spread.is_empty(), "more than {MOST} files:\n{}\n{advice}", spread.join("\n"));
}

#[test]
fn an_exception_that_is_no_longer_needed_is_detected() {
    let spread: BTreeSet<(String, String)> =
        spread().into_keys().map(|(krate, name, _)| (krate, name)).collect();
    for (krate, name, _) in SPREAD {
        let is_spread = spread.contains(&((*krate).to_owned(), (*name).to_owned()));
        assert!(is_spread, "{krate}: {name} is spread no more: take it off the list");
    }
}

#[test]
fn heads_of_impls_are_parsed() {
    let of = |text| impls(text).into_iter().collect::<Vec<_>>();
    assert_eq!(
        of("impl A {\n}\nimpl<'a, T: Fn() -> u8> x::B<'a, T>\nwhere\n    T: C,\n{\n}"),
        ["A", "B"]
    );
    assert_eq!(of("impl C for A {\n}\n    impl D {}\n"), ["D"]);
    assert!(of(&without_tests("#[cfg(test)]\nmod tests {\n    impl A {\n    }\n}\n")).is_empty());
}

fn is_excepted(krate: &str, name: &str) -> bool {
    SPREAD.iter().any(|(of, excepted, _)| *of == krate && *excepted == name)
}

/// The types whose methods are in more than [`MOST`] files, with these files.
fn spread() -> BTreeMap<Key, BTreeSet<String>> {
    let mut crates: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for source in tree::sources(&["crates"]) {
        if let Some((krate, file)) = source.product_file() {
            crates.entry(krate).or_default().push((file, without_tests(&source.text)));
        }
    }
    let mut found: BTreeMap<Key, BTreeSet<String>> = BTreeMap::new();
    for (krate, files) in &crates {
        let defined = definitions(files);
        for (file, text) in files {
            for name in impls(text) {
                let at = nearest(defined.get(&name), file);
                let key = (krate.clone(), name, at);
                found.entry(key).or_default().insert(file.clone());
            }
        }
    }
    found.retain(|_, files| files.len() > MOST);
    found
}

/// For each type name, the files that define such a type.
fn definitions(files: &[(String, String)]) -> BTreeMap<String, Vec<String>> {
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, text) in files {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().take(2).position(|word| matches!(*word, "struct" | "enum"));
            let Some(name) = at.and_then(|at| words.get(at + 1)) else { continue };
            let is_name = |c: char| c.is_alphanumeric() || c == '_';
            let name = name.split(|c| !is_name(c)).next().unwrap_or_default();
            defined.entry(name.to_owned()).or_default().push(file.clone());
        }
    }
    defined
}

/// The file nearest to `file` among those that define a type of this name.
fn nearest(defined: Option<&Vec<String>>, file: &str) -> String {
    let common = |other: &&String| {
        let parts = file.split('/').zip(other.split('/'));
        (*other == file, parts.take_while(|(a, b)| a == b).count())
    };
    defined.and_then(|files| files.iter().max_by_key(common)).cloned().unwrap_or_default()
}

/// The types with inherent methods in this text.
fn impls(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = line.trim_start().strip_prefix("impl") else { continue };
        if !rest.starts_with([' ', '<']) {
            continue;
        }
        let mut head = rest.to_owned();
        while !head.contains('{') {
            let Some(more) = lines.next() else { break };
            head = format!("{head} {}", more.trim());
        }
        found.extend(own_type(&head));
    }
    found
}

/// The type in the head of an `impl`; `None` if it implements a trait.
fn own_type(head: &str) -> Option<String> {
    let head = head.split('{').next()?.split(" where ").next()?;
    let head = after_generics(head.trim()).trim();
    if head.contains(" for ") {
        return None;
    }
    head.split('<').next()?.trim().rsplit("::").next().map(str::to_owned)
}

/// The text without `<…>` at its beginning.
fn after_generics(head: &str) -> &str {
    let mut depth = 0_usize;
    let mut before = ' ';
    for (at, c) in head.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return if at == 0 { head } else { &head[at + 1..] };
        }
        before = c;
    }
    head
}
