//! All texts of the product's sources that people may read, in one file, so that a reviewer can read them through.
//! (The texts of `--help` are in the snapshots of `cli.rs`.)
//!
//! After a change: `INSTA_UPDATE=always cargo test -p thalweg --test house messages`, then read the difference.

use super::tree::{self, without_tests};
use proc_macro2::{Delimiter, Group, LexError, TokenStream, TokenTree};
use std::fmt::Write as _;

/// Crates of the harness, whose texts only developers read.
const HARNESS: &[&str] = &["bench", "experiment", "fuzz", "lab", "sim"];

/// Macros and functions whose arguments are for developers or machines.
const INTERNAL: &[&str] = &[
    "assert",
    "assert_eq",
    "assert_ne",
    "concat",
    "debug_assert",
    "debug_assert_eq",
    "derive_key",
    "env",
    "execute",
    "expect",
    "include_bytes",
    "include_str",
    "new_derive_key",
    "panic",
    "query",
    "query_as",
    "query_scalar",
    "unreachable",
];

/// Attributes that contain texts for users.
const ATTRIBUTES: &[&str] = &["arg", "clap", "command", "error", "value"];

#[test]
fn messages_are_those_of_the_snapshot() {
    let mut text = String::new();
    for source in tree::sources(&["crates"]) {
        let Some((krate, _)) = source.product_file() else { continue };
        if HARNESS.contains(&krate.as_str()) {
            continue;
        }
        let messages = messages(&without_tests(&source.text))
            .unwrap_or_else(|why| panic!("{}: {why}", source.path));
        if !messages.is_empty() {
            writeln!(text, "\n{}", source.path).expect("a String");
        }
        for message in messages {
            writeln!(text, "  {}", message.replace('\n', "\n  ")).expect("a String");
        }
    }
    insta::assert_snapshot!("messages", text);
}

#[test]
fn messages_are_found_in_sources() {
    let text = r##"
        //! A comment of the module.
        #[error("cannot read {path}: {source}")]
        #[doc = "a comment of the item"]
        fn f() { assert!(a, "not for users"); bail!("it broke \
            off: {}", x("one")); let a = r#"say "no" here"#; b.expect("it is there"); sql("SELECT a FROM b") }
    "##;
    assert_eq!(
        messages(text).unwrap(),
        ["cannot read {path}: {source}", "it broke off: {}", "say \"no\" here"]
    );
}

/// The texts in this source, each once, in the order of the source.
fn messages(text: &str) -> Result<Vec<String>, LexError> {
    let tokens: TokenStream = text.parse()?;
    let mut found = Vec::new();
    collect(tokens, &mut found);
    Ok(found)
}

fn collect(tokens: TokenStream, found: &mut Vec<String>) {
    let mut before: Vec<TokenTree> = Vec::new();
    for token in tokens {
        match &token {
            TokenTree::Literal(literal) => {
                let text = unquoted(&literal.to_string());
                if let Some(text) = text.filter(|text| is_message(text) && !found.contains(text)) {
                    found.push(text);
                }
            }
            TokenTree::Group(group) if is_for_users(&before, group) => {
                collect(group.stream(), found);
            }
            _ => {}
        }
        before.push(token);
    }
}

/// Whether a group of tokens after these ones may contain texts for users.
fn is_for_users(before: &[TokenTree], group: &Group) -> bool {
    let is = |token: &TokenTree, c: char| matches!(token, TokenTree::Punct(p) if p.as_char() == c);
    let is_after_hash = match before {
        [.., hash, mark] if is(mark, '!') => is(hash, '#'),
        [.., hash] => is(hash, '#'),
        [] => false,
    };
    let is_attribute = group.delimiter() == Delimiter::Bracket && is_after_hash;
    let name = match is_attribute {
        true => group.stream().into_iter().next(),
        false => before.iter().rev().find(|token| !is(token, '!')).cloned(),
    };
    match name {
        Some(TokenTree::Ident(name)) if is_attribute => {
            ATTRIBUTES.contains(&name.to_string().as_str())
        }
        Some(TokenTree::Ident(name)) => !INTERNAL.contains(&name.to_string().as_str()),
        _ => !is_attribute,
    }
}

/// The text of a string literal, without the breaks of lines that only the source has; `None` for other literals.
fn unquoted(literal: &str) -> Option<String> {
    let is_raw = literal.starts_with('r');
    let text = literal.trim_start_matches('r').trim_matches('#');
    let text = text.strip_prefix('"')?.strip_suffix('"')?;
    if is_raw {
        return Some(text.to_owned());
    }
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    let joined = parts.fold(first, |text, part| text + part.trim_start());
    Some(joined.replace("\\\"", "\"").replace("\\n", "\n"))
}

/// Whether the text has at least two words and is not SQL.
fn is_message(text: &str) -> bool {
    const SQL: &[&str] =
        &["ALTER", "CREATE", "DELETE", "DROP", "INSERT", "PRAGMA", "SELECT", "UPDATE", "WITH"];
    let mut words = text.split_whitespace();
    let is_word = |word: &&str| word.chars().filter(|c| c.is_ascii_lowercase()).count() > 1;
    let is_sql = words.clone().next().is_some_and(|first| SQL.contains(&first));
    !is_sql && words.by_ref().filter(is_word).count() > 1
}
