//! Names and texts that no file of the project may contain.

use super::tree;

/// Names that say nothing about the content.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "manager", "misc"];

/// Text that must not be committed, with the reason. Each is written in two halves, so that this file does not contain
/// it.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("FIX", "ME", "mend it, or write an issue"),
    ("TO", "DO", "do it, or write an issue"),
    ("XX", "X", "mend it, or write an issue"),
    ("#[ign", "ore", "a test that does not run shows nothing"),
    ("/ro", "ot/", "a path of one machine"),
    ("/ho", "me/", "a path of one machine"),
    ("/wo", "rk/", "a path of one machine"),
    ("work", "place", "how the text came about is not the project's matter"),
    ("index.crates", ".io", "the name of a registry's host"),
    ("static.crates", ".io", "the name of a registry's host"),
];

#[test]
fn file_names_describe_the_content() {
    for source in tree::all() {
        let empty = source.path.split(['/', '.']).find(|part| EMPTY_NAMES.contains(part));
        assert!(empty.is_none(), "{}: '{}' says nothing", source.path, empty.unwrap());
    }
}

#[test]
fn no_forbidden_text() {
    let mut found = Vec::new();
    for source in tree::all() {
        for (number, line) in source.lines() {
            for (head, tail, reason) in FORBIDDEN {
                if line.contains(&format!("{head}{tail}")) {
                    found.push(format!("{}:{number}: {head}{tail}: {reason}", source.path));
                }
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Clippy recognises the call itself, however it was imported. Of several lists it reads only the nearest. The lists of
/// pure crates need not mention tokio, which those crates cannot import.
#[test]
fn every_clippy_list_forbids_unbounded_queues() {
    let lists = tree::all().into_iter().filter(|source| source.path.ends_with("clippy.toml"));
    let lists: Vec<tree::Source> = lists.collect();
    let forbids = |list: &tree::Source, path| list.text.contains(&format!("path = \"{path}\""));
    let root = lists.iter().find(|list| list.path == "clippy.toml").expect("a list at the root");
    assert!(forbids(root, "tokio::sync::mpsc::unbounded_channel"), "tokio's is allowed");
    for list in lists {
        assert!(forbids(&list, "std::sync::mpsc::channel"), "{} allows std's", list.path);
    }
}

/// The standard library's locks have to be asked whether a thread panicked while it held them (decision 0106).
#[test]
fn product_code_has_locks_without_poison() {
    let sources = tree::sources(&["crates"]);
    let products = sources.iter().filter(|source| source.product_file().is_some());
    let name = concat!("Poison", "Error");
    let found: Vec<&str> =
        products.filter(|source| source.text.contains(name)).map(|source| &*source.path).collect();
    assert!(found.is_empty(), "use the locks of parking_lot in {found:?}");
}

#[test]
fn unsafe_code_says_why_it_is_sound() {
    for source in tree::all().iter().filter(|source| source.is(&["rs"])) {
        let lines: Vec<&str> = source.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if !code.contains(concat!("uns", "afe {")) {
                continue;
            }
            let near = &lines[index.saturating_sub(6)..=index];
            let argued = near.iter().any(|line| line.contains("SAFETY:"));
            assert!(argued, "{}:{}: no SAFETY comment", source.path, index + 1);
        }
    }
}

/// Code that may print without escaping: the console, and code that writes the bytes of files and streams.
const RAW_WRITERS: &[&str] = &[
    "crates/console/src/",
    "crates/thalweg/src/commands/get/streams.rs",
    "crates/thalweg/src/commands/stream/sink.rs",
];

/// Peers choose some of the printed text, so everything must be printed by `thalweg_console`, which escapes it.
#[test]
fn all_output_is_escaped() {
    let harness = ["bench", "lab", "experiment"].map(|room| format!("crates/{room}/"));
    let is_product = |path: &str| {
        path.starts_with("crates/")
            && path.contains("/src/")
            && !path.contains("test")
            && !harness.iter().any(|room| path.starts_with(room.as_str()))
            && !RAW_WRITERS.iter().any(|raw| path.starts_with(raw))
    };
    let mut found = Vec::new();
    for source in tree::all().iter().filter(|source| source.is(&["rs"]) && is_product(&source.path))
    {
        let product = source.text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (index, line) in product.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let writes = ["stdout()", "stderr()"].iter().any(|stream| {
                let mut found = code.match_indices(stream);
                found.any(|(at, _)| !code[..at].ends_with('_'))
            });
            let bar = code.contains(".set_message(")
                && !code.contains("plain(")
                && !code.contains("::INITIAL_TEXT");
            if writes || bar {
                found.push(format!("{}:{}: {}", source.path, index + 1, code.trim()));
            }
        }
    }
    assert!(found.is_empty(), "write by thalweg_console:\n{}", found.join("\n"));
}
