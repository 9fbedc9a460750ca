//! Mistyped keys, forgotten units, and any other text.

use crate::values::full;
use proptest::prelude::*;
use thalweg_node::config::{Config, Problem};

/// The keys and tables in `text`: the number of the line, the key's range in it, and the key.
fn keys(text: &str) -> Vec<(usize, std::ops::Range<usize>, &str)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let ends = |from: usize| line[from..].find(|c| !word(c)).map_or(line.len(), |n| from + n);
        let starts: Vec<usize> = match line.chars().next() {
            // The last name in `[relay.quota]` or `[[oracle.rule]]`.
            Some('[') => vec![line.rfind(['.', '[']).unwrap() + 1],
            Some('#') | None => vec![],
            // Also the keys of an inline table.
            Some(_) => line
                .match_indices(" = ")
                .map(|(at, _)| line[..at].rfind(|c| !word(c)).map_or(0, |n| n + 1))
                .collect(),
        };
        found.extend(starts.into_iter().map(|s| (number + 1, s..ends(s), &line[s..ends(s)])));
    }
    found
}

/// The text with the `n`th key replaced.
fn with_key(
    text: &str,
    (line, range, _): &(usize, std::ops::Range<usize>, &str),
    key: &str,
) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines[line - 1].replace_range(range.clone(), key);
    lines.join("\n")
}

#[test]
fn every_mistyped_key_is_reported_with_its_position_and_the_right_one() {
    let text = full();
    let keys = keys(&text);
    assert!(keys.len() > 35, "the example has all keys: {}", keys.len());
    // Keys of one letter (Algorithm 1's `t` and `p`) have no letters to swap or lose.
    for place in keys.iter().filter(|(.., key)| key.len() > 1) {
        let (line, range, key) = place;
        let swapped = format!("{}{}{}", &key[1..2], &key[..1], &key[2..]);
        for typo in [key[1..].to_owned(), format!("{key}s"), swapped, key.to_uppercase()] {
            if typo == *key || typo == "allow_to" {
                continue;
            }
            let problems = Config::parse(&with_key(&text, place, &typo)).unwrap_err();
            let told = problems.iter().find(|p| p.what.contains(&format!("unknown key `{typo}`")));
            let Some(told) = told else { panic!("{typo} for {key}: {problems:?}") };
            assert_eq!(told.at, Some((*line, range.start + 1)), "{typo}: {told}");
            let suggested = told.what.contains(&format!("did you mean `{key}`?"));
            assert!(suggested || typo == key.to_uppercase(), "{told}");
        }
    }
}

#[test]
fn a_value_without_its_unit_is_refused_with_an_example() {
    for (key, example) in [
        ("relay]\nidle", "\"5 s\""),
        ("relay]\ndrain", "\"5 s\""),
        ("relay.quota]\nrate", "\"40 Mbit/s\""),
        ("relay.quota]\nbytes_per_day", "\"64 kB\""),
        ("oracle]\nvalidity", "\"5 s\""),
        ("oracle]\ntoken_validity", "\"5 s\""),
    ] {
        let told = |value: &str| {
            let problems = Config::parse(&format!("[{key} = {value}")).unwrap_err();
            assert_eq!(problems.len(), 1, "{problems:?}");
            problems[0].clone()
        };
        for number in ["30", "1.5", "true", "[]"] {
            let problem = told(number);
            assert!(problem.what.contains(example), "{problem}");
            assert_eq!(problem.at.unwrap().0, 2, "{problem}");
        }
        let problem = told("\"30\"");
        assert!(
            problem.what.contains("the unit is missing") && problem.what.contains("write it like")
        );
        assert!(told("\"30 parsecs\"").what.contains("unknown unit"));
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let text = r#"
listne = ["0.0.0.0:7373"]
[relay]
idle = 5
drain = "5 parsecs"
max_connections = 0
ports = ["80", "99999"]
[socks]
listen = "0.0.0.0:1080"
legs = "opne"
[[oracle.rule]]
client = "Guest"
[[oracle.rule]]
client = "guest"
"#;
    let problems = Config::parse(text).unwrap_err();
    let lines: Vec<usize> = problems.iter().map(|p| p.at.unwrap().0).collect();
    assert_eq!(lines, [2, 4, 5, 6, 7, 9, 10, 12, 13], "{problems:#?}");
}

fn told(text: &str) -> Vec<Problem> {
    Config::parse(text).err().unwrap_or_default()
}

proptest! {
    /// Any text is read or refused, and positions of problems are within it.
    #[test]
    fn any_text_is_read_or_refused(text in "[\\[\\]a-z_.=\"'{},#0-9 \n\u{e9}]{0,200}") {
        for problem in told(&text) {
            if let Some((line, _)) = problem.at {
                prop_assert!(line <= text.lines().count() + 1, "{problem}");
            }
        }
    }

    /// The full example with a piece cut out, doubled or replaced.
    #[test]
    fn a_damaged_file_is_read_or_refused(
        from: prop::sample::Index,
        length in 0..60usize,
        put in "[\\[\\]a-z_.=\"{},#0-9 \n]{0,12}",
    ) {
        let text: Vec<char> = full().chars().collect();
        let from = from.index(text.len());
        let to = (from + length).min(text.len());
        let damaged: String =
            text[..from].iter().copied().chain(put.chars()).chain(text[to..].iter().copied()).collect();
        for problem in told(&damaged) {
            prop_assert!(!problem.what.is_empty());
        }
    }
}
