//! Errors of topologies, with messages that help to correct them.

use thalweg_units::likeness::{self, nearest};
use thiserror::Error;

/// A topology, or a change to one, is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// The text is not TOML, or a key or value in it is unknown.
    #[error("{0}")]
    Syntax(String),
    /// An unknown name.
    #[error("{at}: there is no {kind} `{name}`{}", hint(nearest.as_deref()))]
    Unknown {
        /// The place: `path 2`, `cross 1`, `lab set` …
        at: String,
        /// `host`, `link`, `interface`, `key` …
        kind: &'static str,
        /// The name as given.
        name: String,
        /// The nearest name that exists.
        nearest: Option<String>,
    },
    /// A value that is out of range or does not fit the others.
    #[error("{key} = {value}: {why}")]
    Value {
        /// The key with its table: `link.access.rate`.
        key: String,
        value: String,
        /// What is wrong, and what to write instead.
        why: String,
    },
    /// Contradictory keys, or a key without another one that it needs.
    #[error("{at}: {why}")]
    Conflict {
        /// The place.
        at: String,
        /// What is wrong, and what to write instead.
        why: String,
    },
}

impl TopologyError {
    pub(crate) fn value(
        key: impl Into<String>,
        value: impl ToString,
        why: impl Into<String>,
    ) -> Self {
        Self::Value { key: key.into(), value: value.to_string(), why: why.into() }
    }

    pub(crate) fn conflict(at: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Conflict { at: at.into(), why: why.into() }
    }

    /// Creates the error that `name` is not among `known`.
    pub(crate) fn unknown<'a>(
        at: impl Into<String>,
        kind: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let nearest = nearest(name, known).map(str::to_owned);
        Self::Unknown { at: at.into(), kind, name: name.to_owned(), nearest }
    }

    /// Converts an error of the TOML parser, and adds the nearest key if one is unknown.
    pub(crate) fn from_toml(error: &toml::de::Error) -> Self {
        let hint = likeness::hint(error.message());
        Self::Syntax(format!("{}{hint}", error.to_string().trim_end()))
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default()
}
