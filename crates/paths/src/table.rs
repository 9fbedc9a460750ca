//! Parses text tables of legs: the parts that files of rates and of prices share.

use thiserror::Error;

/// Why a file of legs cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// A line of a table is invalid.
    #[error("line {line}: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong, and how to write it.
        why: String,
    },
    /// The TOML is invalid.
    #[error("{0}")]
    Toml(String),
    /// The file is empty; the text says how to write one.
    #[error("{0}")]
    Empty(&'static str),
}

/// Whether the text is TOML, judging by its first non-empty line; `None` if there is none.
pub fn is_toml(text: &str) -> Option<bool> {
    let (_, first) = lines(text).next()?;
    Some(first.starts_with('[') || first.contains('='))
}

/// The non-empty lines with their numbers from 1, without comments and surrounding spaces.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let trimmed = (1..)
        .zip(text.lines())
        .map(|(number, line)| (number, line.split('#').next().unwrap_or_default().trim()));
    trimmed.filter(|(_, line)| !line.is_empty())
}

/// The cells of a line.
pub fn cells(line: &str) -> Vec<&str> {
    line.split(',').map(str::trim).collect()
}
