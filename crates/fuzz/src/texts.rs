//! Targets that take texts of users and of files.

use std::{hint::black_box, str};
use thalweg_lab::topology::{LinkChange, Topology};
use thalweg_units::{ByteSize, NodeId, Rate, parse_duration, parse_probability};

/// The bytes as a text; others are refused before any of these parsers.
fn text(bytes: &[u8]) -> Option<&str> {
    str::from_utf8(bytes).ok()
}

/// A settings file is read, or every problem in it has a text.
pub fn settings(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Err(problems) = thalweg_node::config::Config::parse(text) {
        assert!(!problems.is_empty());
        assert!(problems.iter().all(|problem| !problem.to_string().is_empty()));
    }
}

/// A topology is read, or refused with a text.
pub fn topology(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Err(why) = Topology::from_toml(text) {
        assert!(!why.to_string().is_empty());
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    _ = black_box(LinkChange::parse(&words));
}

/// A table of estimates is read, or refused with a text.
pub fn estimates(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Err(why) = thalweg_paths::estimates::Estimates::parse(text) {
        assert!(!why.to_string().is_empty());
    }
}

/// A URL prints as a text that is the same URL.
pub fn urls(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Ok(url) = thalweg_paths::url::HttpUrl::parse(text) {
        let shown = url.to_string();
        let again = thalweg_paths::url::HttpUrl::parse(&shown);
        assert!(again.is_ok_and(|again| again.to_string() == shown), "{text:?}: {shown:?}");
    }
}

/// Exclude patterns, one a line, are compiled within their limits or refused.
pub fn excludes(bytes: &[u8]) {
    let patterns: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    _ = black_box(thalweg_files::check_excludes(&patterns));
}

/// Quantities print as texts that are the same quantities.
pub fn units(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Ok(rate) = text.parse::<Rate>() {
        assert!(rate.to_string().parse::<Rate>().is_ok(), "{text:?}");
    }
    if let Ok(size) = text.parse::<ByteSize>() {
        assert!(size.to_string().parse::<ByteSize>().is_ok(), "{text:?}");
    }
    if let Ok(id) = text.parse::<NodeId>() {
        assert_eq!(id.to_string().parse(), Ok(id));
    }
    _ = black_box(parse_duration(text));
    let chance = parse_probability(text);
    assert!(
        chance.is_err() || chance.is_ok_and(|chance| (0.0..=1.0).contains(&chance)),
        "{text:?}"
    );
}
