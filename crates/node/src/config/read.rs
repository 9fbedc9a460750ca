//! Reads the whole text, and finds all problems in it.
//!
//! Serde stops at the first error. So the value in error is removed from the tree and the rest is read again, until
//! there are no more errors. The removed values then have their defaults, and the values can be checked against each
//! other as well.

use super::{Config, Problem};
use serde::Deserialize as _;
use std::ops::Range;
use thalweg_units::likeness::nearest_expected;
use toml::de::{DeTable, DeValue, Deserializer, Error};

/// The most problems that are reported; whoever has more begins with these.
const MOST: usize = 50;

/// Replacements for Serde's words where a table is expected.
const TABLES: [(&str, &str); 2] = [
    ("expected struct OfferSection", "expected { path = \"/data\", to = [\"fra\"] }"),
    ("expected struct AcceptSection", "expected { path = \"/inbox\", from = [\"fra\"] }"),
];

/// The replacement for Rust's names of counts.
const WHOLE: &str = "expected a whole number, 0 or more";

pub(super) fn config(text: &str) -> Result<Config, Vec<Problem>> {
    let (whole, faults) = DeTable::parse_recoverable(text);
    let syntax = |e: &Error| Problem { at: at(text, e.span()), ..Problem::of("", message(e)) };
    let mut problems: Vec<Problem> = faults.iter().take(MOST).map(syntax).collect();
    if !problems.is_empty() {
        // What the parser made of the rest would only mislead.
        return Err(problems);
    }
    let mut rest = whole.clone();
    let config = loop {
        match Config::deserialize(Deserializer::from(rest.clone())) {
            Ok(config) => break Some(config),
            Err(error) => {
                let key = error.span().and_then(|span| take_out(rest.get_mut(), &span));
                let known = key.is_some() && problems.len() < MOST;
                let key = key.unwrap_or_default();
                let at = at(text, error.span());
                let what = listed(&key, message(&error));
                problems.push(Problem { at, ..Problem::of(key, what) });
                if !known {
                    break None;
                }
            }
        }
    };
    let sense = config.iter().flat_map(Config::check);
    // A value that was removed is missing only because it is wrong.
    let sense: Vec<_> = sense.filter(|p| !problems.iter().any(|q| is_within(q, p))).collect();
    let placed = |p: Problem| Problem { at: at(text, span_of(whole.get_ref(), &p.key)), ..p };
    problems.extend(sense.into_iter().map(placed));
    problems.sort();
    match (config, problems.is_empty()) {
        (Some(config), true) => Ok(config),
        _ => Err(problems),
    }
}

/// Serde's message in words for people: `unknown key; did you mean `idle`?`.
fn message(error: &Error) -> String {
    let message = error.message().trim_end();
    let mut quoted = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown field "), quoted.next(), nearest_expected(message)) {
        (true, Some(key), Some(near)) => format!("unknown key `{key}`; did you mean `{near}`?"),
        (true, Some(key), None) => {
            let known: Vec<_> = quoted.map(|k| format!("`{k}`")).collect();
            format!("unknown key `{key}`; the known keys are {}", known.join(", "))
        }
        (_, _, Some(near)) => {
            let message = message.replace("unknown variant", "unknown value");
            format!("{message}; did you mean `{near}`?")
        }
        _ => counted(&message.replace('\n', "; ")),
    }
}

/// The message if one table stands for a list of tables.
fn listed(key: &str, message: String) -> String {
    match message.starts_with("invalid type: map, expected a sequence") {
        true => format!("a list is expected: write [{{ … }}], or a table [[{key}]]"),
        false => message,
    }
}

/// Replaces Rust's names of counts and tables.
fn counted(message: &str) -> String {
    let whole = |message: String, of| message.replace(of, WHOLE);
    let message = ["expected usize", "expected u32"].into_iter().fold(message.to_owned(), whole);
    let table = |message: String, (of, table): (&str, &str)| message.replace(of, table);
    TABLES.into_iter().fold(message, table)
}

/// Removes the entry whose key or value is at `span` from the table. Returns its key.
fn take_out(table: &mut DeTable<'_>, span: &Range<usize>) -> Option<String> {
    let within = |outer: Range<usize>| outer.start <= span.start && span.end <= outer.end;
    let found = table.iter().find(|(key, value)| {
        let leaf = !value.get_ref().is_table() && !holds_tables(value.get_ref());
        key.span() == *span || value.span() == *span || (leaf && within(value.span()))
    });
    if let Some(key) = found.map(|(key, _)| key.clone()) {
        table.remove(&key);
        return Some(key.into_inner().into_owned());
    }
    table.iter_mut().find_map(|(key, value)| {
        let inner = take_out_of(value.get_mut(), span)?;
        Some(join(key.get_ref(), &inner))
    })
}

fn holds_tables(value: &DeValue<'_>) -> bool {
    value.as_array().is_some_and(|array| array.iter().any(|entry| entry.get_ref().is_table()))
}

fn take_out_of(value: &mut DeValue<'_>, span: &Range<usize>) -> Option<String> {
    match value {
        DeValue::Table(table) => take_out(table, span),
        // A list of values is removed as a whole; lists of tables are searched.
        DeValue::Array(array) => array.iter_mut().enumerate().find_map(|(i, entry)| {
            let DeValue::Table(table) = entry.get_mut() else { return None };
            Some(join(&(i + 1).to_string(), &take_out(table, span)?))
        }),
        _ => None,
    }
}

fn join(key: &str, inner: &str) -> String {
    format!("{key}.{inner}")
}

/// Whether `inner` is about the same key as `outer`, or one in its table.
fn is_within(inner: &Problem, outer: &Problem) -> bool {
    let rest = inner.key.strip_prefix(&outer.key);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The position of the key, or of the nearest table around it that is in the text.
fn span_of(table: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let (found, value) = table.iter().find(|(k, _)| k.get_ref().as_ref() == first)?;
    let deeper = match value.get_ref() {
        DeValue::Table(inner) => span_of(inner, rest),
        DeValue::Array(array) => {
            let (number, rest) = rest.split_once('.').unwrap_or((rest, ""));
            let entry = number.parse().ok().and_then(|n: usize| array.get(n.checked_sub(1)?));
            entry.and_then(|entry| match entry.get_ref() {
                DeValue::Table(inner) => span_of(inner, rest).or_else(|| Some(entry.span())),
                _ => None,
            })
        }
        _ => None,
    };
    Some(deeper.unwrap_or_else(|| found.span()))
}

/// Line and column of the span's beginning, from 1, in characters.
fn at(text: &str, span: Option<Range<usize>>) -> Option<(usize, usize)> {
    let before = text.get(..span?.start)?;
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Some((line, column))
}
