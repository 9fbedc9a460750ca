//! Reads the source tree for the other tests.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the project.
pub struct Source {
    /// The path relative to the root, with `/`.
    pub path: String,
    pub text: String,
}

impl Source {
    /// The lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The crate, and the path below its `src`; `None` for other files and for tests.
    pub fn product_file(&self) -> Option<(String, String)> {
        let (krate, file) = self.path.strip_prefix("crates/")?.split_once("/src/")?;
        let is_test = file.split('/').any(|part| part == "tests" || part.ends_with("tests.rs"));
        (self.is(&["rs"]) && !is_test).then(|| (krate.to_owned(), file.to_owned()))
    }

    /// Whether the file has one of these extensions.
    pub fn is(&self, extensions: &[&str]) -> bool {
        extensions.iter().any(|extension| self.path.ends_with(&format!(".{extension}")))
    }
}

/// The text without the bodies of test modules.
pub fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            skip_item(&mut lines);
            continue;
        }
        kept += line;
        kept.push('\n');
    }
    kept
}

/// Skips the item that begins after further attributes.
fn skip_item<'a>(lines: &mut impl Iterator<Item = &'a str>) {
    let Some(head) = lines.find(|line| !line.trim_start().starts_with("#[")) else { return };
    let indent = &head[..head.len() - head.trim_start().len()];
    if head.ends_with(',') {
        return;
    }
    let mut last = head;
    while !last.ends_with(['{', ';']) {
        let Some(line) = lines.next() else { return };
        last = line;
    }
    let ends = [format!("{indent}}}"), format!("{indent}}};")];
    if last.ends_with('{') {
        lines.find(|line| ends.iter().any(|end| end == line));
    }
}

/// The root of the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout exists")
}

/// The text files below these paths of the root; files that are not UTF-8 are left out.
pub fn sources(below: &[&str]) -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    for start in below {
        assert!(root.join(start).exists(), "{start} does not exist");
        collect(&root, &root.join(start), &mut found);
    }
    assert!(!found.is_empty(), "no file below {below:?}");
    found
}

/// All committed text files: crates, documents, scripts.
pub fn all() -> Vec<Source> {
    let root = root();
    let names = fs::read_dir(&root).expect("the root can be read");
    let names: Vec<String> = names
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !["target", ".git", "results", "Cargo.lock"].contains(&name.as_str()))
        .collect();
    sources(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

fn collect(root: &Path, path: &Path, found: &mut Vec<Source>) {
    if path.is_dir() {
        let mut entries: Vec<PathBuf> = fs::read_dir(path)
            .expect("a directory")
            .map(|entry| entry.expect("entry").path())
            .collect();
        entries.sort();
        entries.iter().for_each(|entry| collect(root, entry, found));
    } else if let Ok(text) = fs::read_to_string(path) {
        let path = path.strip_prefix(root).expect("below the root");
        found.push(Source { path: path.to_string_lossy().into_owned(), text });
    }
}
