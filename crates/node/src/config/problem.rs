//! Problems of the settings, and their positions.

use std::{fmt, io, path::PathBuf};
use thiserror::Error;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Line and column, from 1, in characters; `None` if something is missing.
    pub at: Option<(usize, usize)>,
    /// The key, e.g. `relay.idle` or `oracle.rule.2.ports`; empty if unknown.
    pub key: String,
    /// What is wrong, and what to write instead.
    pub what: String,
}

impl Problem {
    pub(super) fn of(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { at: None, key: key.into(), what: what.into() }
    }
}

impl fmt::Display for Problem {
    /// `3:1: relay.idle: …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.at {
            write!(f, "{line}:{column}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.what)
    }
}

/// Why the settings cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    /// The settings have problems.
    #[error("{}", lines(file, problems))]
    Problems {
        file: PathBuf,
        /// At least one.
        problems: Vec<Problem>,
    },
}

/// `FILE:LINE:COLUMN: …`, one line per problem, as editors understand it.
fn lines(file: &std::path::Path, problems: &[Problem]) -> String {
    let file = file.display();
    let line = |p: &Problem| match p.at {
        Some(_) => format!("{file}:{p}"),
        None => format!("{file}: {p}"),
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}
