//! A parser of the OpenMetrics text format, and the rules of `promtool check metrics`, with those of this project.

use std::collections::BTreeSet;

/// A metric family.
#[derive(Clone, Debug, Default)]
pub struct Family {
    pub name: String,
    pub help: Option<String>,
    pub kind: Option<String>,
    pub samples: Vec<Sample>,
}

/// A series and its value.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// The suffixes that a family of this kind adds to its name.
pub fn suffixes(kind: &str) -> &'static [&'static str] {
    match kind {
        "counter" => &["_total"],
        "histogram" => &["_bucket", "_count", "_sum"],
        "info" => &["_info"],
        _ => &[""],
    }
}

impl Family {
    fn kind(&self) -> &str {
        self.kind.as_deref().unwrap_or("unknown")
    }

    /// The names that its series can have.
    pub fn series(&self) -> impl Iterator<Item = String> {
        suffixes(self.kind()).iter().map(|suffix| format!("{}{suffix}", self.name))
    }
}

/// The families of a page. `Err`: a line that is none of the format, or not in its place.
pub fn parse(page: &str) -> Result<Vec<Family>, String> {
    let mut families: Vec<Family> = Vec::new();
    let Some(body) = page.strip_suffix("# EOF\n") else {
        return Err("the page does not end with # EOF".to_owned());
    };
    for line in body.lines() {
        let wrong = |what: &str| Err(format!("{what}: {line}"));
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(word), Some(name)) = (words.next(), words.next()) else {
                return wrong("a comment of no meaning");
            };
            let text = words.next().unwrap_or_default().to_owned();
            if families.last().is_none_or(|last| last.name != name) {
                if families.iter().any(|family| family.name == name) {
                    return wrong("a family in two places");
                }
                families.push(Family { name: name.to_owned(), ..Family::default() });
            }
            let Some(family) = families.last_mut() else { return wrong("no family") };
            let field = match word {
                "HELP" => &mut family.help,
                "TYPE" => &mut family.kind,
                "UNIT" if name.ends_with(&format!("_{text}")) => continue,
                _ => return wrong("a comment of no meaning"),
            };
            if field.replace(text).is_some() || !family.samples.is_empty() {
                return wrong("a description twice or after its series");
            }
            continue;
        }
        let Some(sample) = sample(line) else { return wrong("not a series") };
        match families.last_mut() {
            Some(family) if family.series().any(|name| name == sample.name) => {
                family.samples.push(sample);
            }
            _ => return wrong("a series outside its family"),
        }
    }
    Ok(families)
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label.to_owned(), value));
            rest = match after.strip_prefix(',') {
                Some(next) if !next.starts_with('}') => next,
                Some(_) => return None,
                None if after.starts_with('}') => after,
                None => return None,
            };
        }
        rest = &rest[1..];
    }
    let value = rest.strip_prefix(' ')?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        _ => value.parse().ok()?,
    };
    Some(Sample { name: name.to_owned(), labels, value })
}

/// The text up to the closing quote, and what follows the quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, character) in text.char_indices() {
        match (escaped, character) {
            (true, 'n') => value.push('\n'),
            (true, '"' | '\\') => value.push(character),
            (true, _) => return None,
            (false, '\\') => {}
            (false, '"') => return Some((value, &text[at + 1..])),
            (false, _) => value.push(character),
        }
        escaped = !escaped && character == '\\';
    }
    None
}

/// Units that names use, always as their last word.
const BASE_UNITS: &[&str] = &[
    "amperes", "bytes", "celsius", "grams", "joules", "kelvin", "meters", "metres", "ratio",
    "seconds", "volts",
];

/// Units that have to be converted, and their prefixes.
const OTHER_UNITS: &[&str] = &[
    "bits",
    "calories",
    "days",
    "fahrenheit",
    "hours",
    "inches",
    "kelvins",
    "miles",
    "minutes",
    "ounces",
    "percent",
    "percentage",
    "pounds",
    "rankine",
    "weeks",
    "yards",
];

/// Prefixes of units; a unit with one is not a base unit.
const PREFIXES: &[&str] = &[
    "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega",
    "mibi", "mebi", "giga", "gibi", "tera", "tebi", "peta", "pebi",
];

/// Units in short: of promtool, and some more.
const ABBREVIATIONS: &[&str] = &[
    "s", "ms", "us", "ns", "sec", "secs", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d", "bps",
    "kbps", "mbps", "pct", "perc", "min", "hz",
];

/// Words that repeat the type.
const KINDS: &[&str] = &["counter", "gauge", "histogram", "summary", "untyped"];

/// Labels that would name a peer, a user or a destination, of which there is any number.
const UNBOUNDED: &[&str] = &[
    "address",
    "client",
    "destination",
    "file",
    "host",
    "key",
    "member",
    "node",
    "path",
    "peer",
    "relay",
    "source",
    "stream",
    "url",
    "user",
];

/// More series of one family come from a label without a bound.
const MOST_SERIES: usize = 100;

/// What is wrong with these families, each as one line.
pub fn problems(families: &[Family]) -> Vec<String> {
    families
        .iter()
        .flat_map(|family| {
            let found = [of_texts(family), of_name(family), of_labels(family), of_values(family)];
            found.concat().into_iter().map(|what| format!("{}: {what}", family.name))
        })
        .collect()
}

fn of_texts(family: &Family) -> Vec<String> {
    let mut found = Vec::new();
    match family.help.as_deref() {
        None | Some("") => found.push("no help text".to_owned()),
        Some(help) => {
            let begins = help.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit());
            let ends = help.ends_with('.') && !help.ends_with("..");
            if !begins || !ends || help.contains("  ") {
                found.push(format!("its help text is not a sentence: {help}"));
            }
        }
    }
    if !["counter", "gauge", "histogram", "info"].contains(&family.kind()) {
        found.push(format!("its type is {}", family.kind()));
    }
    found
}

/// Whether the text is a name of small letters, digits and underscores that does not begin with a digit.
fn is_snake(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(fits)
}

fn of_name(family: &Family) -> Vec<String> {
    let (name, mut found) = (family.name.as_str(), Vec::new());
    if !name.starts_with("thalweg_") {
        found.push("does not begin with thalweg_".to_owned());
    }
    if !is_snake(name) || name.contains("__") || name.ends_with('_') {
        found.push("not a name in snake case".to_owned());
    }
    // The format adds these to the names of families of some kinds.
    for suffix in ["_total", "_bucket", "_count", "_sum", "_created", "_info"] {
        if name.ends_with(suffix) {
            found.push(format!("ends with {suffix}, which is reserved"));
        }
    }
    let words: Vec<&str> = name.split('_').collect();
    // `…_bytes_per_second` is one unit.
    let last = match words.as_slice() {
        [.., unit, "per", "second"] if BASE_UNITS.contains(unit) => words.len() - 3,
        _ => words.len() - 1,
    };
    for (at, word) in words.iter().enumerate() {
        let prefixed = PREFIXES.iter().any(|prefix| {
            let unit = word.strip_prefix(prefix).unwrap_or_default();
            BASE_UNITS.contains(&unit) || OTHER_UNITS.contains(&unit)
        });
        if OTHER_UNITS.contains(word) || prefixed {
            found.push(format!("{word} is not a base unit"));
        } else if BASE_UNITS.contains(word) && at != last {
            found.push(format!("the unit {word} is not the last word"));
        } else if *word == "per" && at != last + 1 {
            found.push("a rate other than UNIT_per_second".to_owned());
        }
        if ABBREVIATIONS.contains(word) {
            found.push(format!("{word} is an abbreviation"));
        }
        if KINDS.contains(word) {
            found.push(format!("{word} repeats the type"));
        }
    }
    found
}

fn of_labels(family: &Family) -> Vec<String> {
    let (mut found, mut seen, mut sets) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for sample in &family.samples {
        let mut names: Vec<&str> = sample.labels.iter().map(|(name, _)| name.as_str()).collect();
        let mut labels = sample.labels.clone();
        labels.sort();
        if !seen.insert((sample.name.clone(), labels)) {
            found.insert(format!("the series {}{:?} is there twice", sample.name, sample.labels));
        }
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            found.insert("a label twice in one series".to_owned());
        }
        for name in &names {
            let is_bucket = sample.name.ends_with("_bucket") && family.kind() == "histogram";
            if !is_snake(name) {
                found.insert(format!("the label {name} is not a name in snake case"));
            }
            if ["le", "quantile"].contains(name) && !(is_bucket && *name == "le") {
                found.insert(format!("the label {name} is reserved"));
            }
            if UNBOUNDED.contains(name) {
                found.insert(format!("the label {name} has no bound"));
            }
        }
        names.retain(|name| *name != "le");
        sets.insert(names.join(","));
    }
    if sets.len() > 1 {
        found.insert(format!("its series have different labels: {sets:?}"));
    }
    if family.samples.len() > MOST_SERIES {
        found.insert(format!("{} series: a label has no bound", family.samples.len()));
    }
    found.into_iter().collect()
}

fn of_values(family: &Family) -> Vec<String> {
    let (mut found, mut before) = (Vec::new(), 0.0);
    for sample in &family.samples {
        let value = sample.value;
        if !value.is_finite() || (family.kind() != "gauge" && value < 0.0) {
            found.push(format!("{} is {value}", sample.name));
        }
        if family.name.ends_with("_ratio") && !(0.0..=1.0).contains(&value) {
            found.push(format!("the ratio {value}"));
        }
        if sample.name.ends_with("_sum") {
            before = 0.0;
        }
        if sample.name.ends_with("_bucket") {
            if value < before {
                found.push("a bucket with fewer observations than the one before".to_owned());
            }
            before = value;
        }
    }
    found
}

#[test]
fn pages_without_problems_have_none() {
    let page = "# HELP thalweg_sent_bytes Bytes of all kinds.\n# TYPE thalweg_sent_bytes counter\n\
        thalweg_sent_bytes_total{leg=\"open\"} 1\nthalweg_sent_bytes_total{leg=\"a \\\"b\\\"\"} 2\n\
        # HELP thalweg_wait_seconds Times.\n# TYPE thalweg_wait_seconds histogram\n\
        thalweg_wait_seconds_sum 1.5\nthalweg_wait_seconds_count 2\n\
        thalweg_wait_seconds_bucket{le=\"0.1\"} 1\nthalweg_wait_seconds_bucket{le=\"+Inf\"} 2\n\
        # HELP thalweg_rate_bytes_per_second A rate.\n# TYPE thalweg_rate_bytes_per_second gauge\n# EOF\n";
    let families = parse(page).unwrap();
    assert_eq!(problems(&families), Vec::<String>::new());
    assert_eq!(families.len(), 3);
    assert_eq!(families[0].samples[1].labels, [("leg".to_owned(), "a \"b\"".to_owned())]);
}

#[test]
fn each_problem_of_a_family_is_detected() {
    let page = |name: &str, kind: &str, series: &str| {
        let series = series.replace('@', name);
        format!("# HELP {name} Help.\n# TYPE {name} {kind}\n{series}\n# EOF\n")
    };
    let cases = [
        (page("other_a", "gauge", "@ 1"), "does not begin with"),
        (page("thalweg_aB", "gauge", "@ 1"), "snake case"),
        (page("thalweg_a:b", "gauge", "@ 1"), "snake case"),
        (page("thalweg_a_total", "gauge", "@ 1"), "ends with _total"),
        (page("thalweg_a_total", "counter", "@_total 1"), "ends with _total"),
        (page("thalweg_a_count", "gauge", "@ 1"), "ends with _count"),
        (page("thalweg_rate_bits_per_second", "gauge", "@ 1"), "bits is not a base unit"),
        (page("thalweg_a_milliseconds", "gauge", "@ 1"), "milliseconds is not a base unit"),
        (page("thalweg_a_percent", "gauge", "@ 1"), "percent is not a base unit"),
        (page("thalweg_bytes_left", "gauge", "@ 1"), "the unit bytes is not the last word"),
        (page("thalweg_bytes_per_day", "gauge", "@ 1"), "the unit bytes is not the last word"),
        (page("thalweg_things_per_second", "gauge", "@ 1"), "a rate other than"),
        (page("thalweg_rate_bps", "gauge", "@ 1"), "bps is an abbreviation"),
        (page("thalweg_wait_ms", "gauge", "@ 1"), "ms is an abbreviation"),
        (page("thalweg_a_gauge", "gauge", "@ 1"), "repeats the type"),
        (page("thalweg_a", "unknown", "@ 1"), "its type is unknown"),
        (page("thalweg_a", "gauge", "@{x=\"1\"} 1\n@{x=\"1\"} 2"), "is there twice"),
        (page("thalweg_a", "gauge", "@{x=\"1\",x=\"2\"} 1"), "a label twice"),
        (page("thalweg_a", "gauge", "@{x=\"1\"} 1\n@{y=\"1\"} 2"), "different labels"),
        (page("thalweg_a", "gauge", "@{aB=\"1\"} 1"), "the label aB"),
        (page("thalweg_a", "gauge", "@{le=\"1\"} 1"), "the label le is reserved"),
        (page("thalweg_a", "gauge", "@{member=\"fra\"} 1"), "the label member has no bound"),
        (page("thalweg_a_ratio", "gauge", "@ 1.1"), "the ratio 1.1"),
        (page("thalweg_a", "counter", "@_total -1"), "is -1"),
        (page("thalweg_a", "gauge", "@ NaN"), "is NaN"),
        ("# TYPE thalweg_a gauge\nthalweg_a 1\n# EOF\n".to_owned(), "no help text"),
        ("# HELP thalweg_a Help.\nthalweg_a 1\n# EOF\n".to_owned(), "its type is unknown"),
        (
            "# HELP thalweg_a some help\n# TYPE thalweg_a gauge\nthalweg_a 1\n# EOF\n".to_owned(),
            "not a sentence",
        ),
    ];
    for (page, says) in cases {
        let found = problems(&parse(&page).unwrap_or_else(|why| panic!("{why}\n{page}")));
        assert!(found.iter().any(|what| what.contains(says)), "{says}: {found:?}\n{page}");
    }
    let many: Vec<String> = (0..=MOST_SERIES).map(|n| format!("@{{x=\"{n}\"}} 1")).collect();
    let found = problems(&parse(&page("thalweg_a", "gauge", &many.join("\n"))).unwrap());
    assert!(found[0].contains("has no bound"), "{found:?}");
}

#[test]
fn pages_that_are_not_of_the_format_are_refused() {
    let described = "# HELP thalweg_a Help.\n# TYPE thalweg_a counter\n";
    for (page, says) in [
        (described.to_owned(), "does not end"),
        (format!("{described}thalweg_a 1\n# EOF\n"), "outside its family"),
        (format!("{described}thalweg_b_total 1\n# EOF\n"), "outside its family"),
        (format!("{described}thalweg_a_total one\n# EOF\n"), "not a series"),
        (format!("{described}thalweg_a_total{{x=\"1}} 1\n# EOF\n"), "not a series"),
        (format!("{described}thalweg_a_total{{x=\"1\",}} 1\n# EOF\n"), "not a series"),
        (
            format!("{described}thalweg_a_total 1\n# HELP thalweg_a Help.\n# EOF\n"),
            "twice or after",
        ),
        (format!("{described}# TYPE thalweg_b gauge\n{described}# EOF\n"), "in two places"),
        ("# a comment\n# EOF\n".to_owned(), "of no meaning"),
    ] {
        let why = parse(&page).unwrap_err();
        assert!(why.contains(says), "{says}: {why}");
    }
}
