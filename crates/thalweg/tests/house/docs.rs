//! Public items and module files have doc comments. The lint `missing_docs` asks for more: it cannot exempt fields and
//! variants, whose names often say everything.

use super::tree::{self, without_tests};

/// Words between `pub` and the name of an item.
const WORDS: &[&str] = &[
    "\"C\"", "async", "const", "enum", "extern", "fn", "mut", "static", "struct", "trait", "type",
    "union", "unsafe",
];

/// Functions that return a value made of their parameters.
const CONSTRUCTORS: &[&str] = &["new", "default"];
const CONSTRUCTOR_PREFIXES: &[&str] = &["from_", "with_"];

/// Functions that return something of `self`, if they have no other parameter.
const GETTERS: &[&str] = &["len", "name", "encode"];
const GETTER_PREFIXES: &[&str] = &["is_", "has_", "as_", "into_", "to_"];

#[test]
fn public_items_and_module_files_have_docs() {
    let mut found = Vec::new();
    for source in tree::sources(&["crates"]) {
        if source.product_file().is_none() {
            continue;
        }
        if !source.text.starts_with("//!") {
            found.push(format!("{}: the module", source.path));
        }
        let text = without_tests(&source.text);
        found.extend(undocumented(&text).iter().map(|item| format!("{}: {item}", source.path)));
    }
    let advice = "write what a reader needs beyond the name: what it is for, units, when it fails; \
        or make the item private (`//!` for a module, in its first line)";
    assert!(found.is_empty(), "without a doc comment:\n{}\n{advice}", found.join("\n"));
}

#[test]
fn a_missing_doc_is_detected() {
    for item in [
        "struct A;",
        "struct A<'a, T> {",
        "enum A {",
        "trait A: B {",
        "unsafe trait A {",
        "type A = u8;",
        "const A: u8 = 0;",
        "static A: u8 = 0;",
        "static mut A: u8 = 0;",
        "union A {",
        "fn A() {",
        "fn A<T>(t: T) {",
        "const fn A() {",
        "async unsafe fn A(",
        "extern \"C\" fn A() {",
    ] {
        assert_eq!(undocumented(&format!("pub {item}")), ["A"], "{item}");
        assert_eq!(undocumented(&format!("    #[derive(B)]\n    pub {item}")), ["A"], "{item}");
        assert!(undocumented(&format!("/// About it.\npub {item}")).is_empty(), "{item}");
    }
    assert_eq!(undocumented("//! The module.\npub struct A;\n/// About it.\npub struct B;"), ["A"]);
    assert_eq!(undocumented("/// About it.\npub struct A;\npub struct B;"), ["B"]);
    assert_eq!(undocumented("// Not a doc comment.\npub struct A;"), ["A"]);
}

#[test]
fn attributes_may_separate_a_doc_from_its_item() {
    let attributes = [
        "#[must_use]",
        "#[serde(a)] // why",
        "#[expect(\n    clippy::too_many_lines,\n    reason = \"b\"\n)]",
        "#[derive(\n    A,\n    B,\n)]\n#[serde(c)]\n// Why.",
    ];
    for attributes in attributes {
        let text = format!("/// About it.\n{attributes}\npub struct A;");
        assert!(undocumented(&text).is_empty(), "{text}");
        assert_eq!(undocumented(&format!("{attributes}\npub struct A;")), ["A"]);
    }
}

#[test]
fn what_is_not_public_or_clear_needs_no_doc() {
    let text = "fn a() {}\npub(crate) fn b() {}\npub(super) struct C;\npub use d;\npub mod e;\npub fn $name() {}\n\
        pub struct_field: u8,\nconst F: u8 = 0;";
    assert!(undocumented(text).is_empty());
    let text = "pub fn new(a: u8) -> Self {\npub fn from_a(a: A) -> Self {\npub fn with_a(self, a: A) -> Self {\n\
        pub const fn is_empty(&self) -> bool {\npub fn len(&self) -> usize {\npub fn into_a(self) -> A {";
    assert!(undocumented(text).is_empty());
    let text = "pub fn rate(&self) -> Rate {\npub fn byte_counts(&self) -> Option<&x::ByteCounts> {\n\
        pub fn key(&self) -> &PrivateKey {";
    assert!(undocumented(text).is_empty());
    let text = "pub fn is_near(&self, other: &Self) -> bool {\npub fn newest(&self) {\npub fn lend(&self) {\n\
        pub struct from_a;\npub fn to_text(\npub fn held(&self) -> &HaveSet {\npub fn rate(&self, of: u8) -> Rate {\n\
        pub fn ate(&self) -> Rate {";
    let without_doc = ["is_near", "newest", "lend", "from_a", "to_text", "held", "rate", "ate"];
    assert_eq!(undocumented(text), without_doc);
}

/// The names of the public items that lack a doc comment.
fn undocumented(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_documented = false;
    let mut is_in_attribute = false;
    for line in text.lines() {
        let line = line.split(" // ").next().unwrap_or_default().trim();
        if is_in_attribute || line.starts_with("#[") {
            is_in_attribute = !line.ends_with(']');
        } else if line.starts_with("///") {
            is_documented = true;
        } else if !line.starts_with("//") {
            found.extend(item(line).filter(|_| !is_documented));
            is_documented = false;
        }
    }
    found
}

/// The name of the public item that begins in this line, if it needs a doc comment.
fn item(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("pub ")?;
    let mut keyword = None;
    while let Some((word, after)) = rest.split_once(' ')
        && WORDS.contains(&word)
    {
        keyword = Some(word);
        rest = after;
    }
    let is_function = keyword? == "fn";
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    let (name, signature) = rest.split_at(end);
    let is_exempt = name.is_empty() || (is_function && is_clear(name, signature));
    (!is_exempt).then_some(name)
}

/// Whether a doc comment could only repeat the name and the types of a function.
fn is_clear(name: &str, signature: &str) -> bool {
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(*prefix));
    if CONSTRUCTORS.contains(&name) || begins(CONSTRUCTOR_PREFIXES) {
        return true;
    }
    let parameters = signature.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let Some(("self" | "mut self" | "&self" | "&mut self", result)) = parameters else {
        return false;
    };
    let type_name = camel_case(name);
    let mut words = result.split(|c: char| !c.is_alphanumeric());
    let names_its_type = words.any(|word| word.ends_with(&type_name));
    GETTERS.contains(&name) || begins(GETTER_PREFIXES) || names_its_type
}

/// The type's name for a name of a function: `ByteCounts` for `byte_counts`.
fn camel_case(name: &str) -> String {
    let capital = |part: &str| {
        let (first, rest) = part.split_at_checked(1).unwrap_or_default();
        first.to_uppercase() + rest
    };
    name.split('_').map(capital).collect()
}
