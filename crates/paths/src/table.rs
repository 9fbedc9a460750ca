//! Tables of legs in text: what files of rates and of prices have in common.

use thiserror::Error;

/// A file of legs cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableError {
    /// A line of a table.
    #[error("line {line}: {why}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong, and how to write it.
        why: String,
    },
    /// TOML.
    #[error("{0}")]
    Toml(String),
    /// There is nothing in it; how to write it.
    #[error("{0}")]
    Empty(&'static str),
}

/// Whether it is TOML, by its first line with something in it; `None`: there is none.
pub fn is_toml(text: &str) -> Option<bool> {
    let (_, first) = lines(text).next()?;
    Some(first.starts_with('[') || first.contains('='))
}

/// Lines with something in them, by their numbers from 1, without comments and spaces around.
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
