//! What can be wrong with a topology, said so that it can be put right.

use thalweg_units::likeness::{self, nearest};
use thiserror::Error;

/// Why a topology, or a change to one, was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopologyError {
    /// The text is not TOML, or a key or a value in it is not known.
    #[error("{0}")]
    Syntax(String),
    /// A name that nothing has.
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
    /// A value out of range, or one that does not fit the others.
    #[error("{key} = {value}: {why}")]
    Value {
        /// The key with its table: `link.access.rate`.
        key: String,
        /// The value as given.
        value: String,
        /// What is wrong, and what to write instead.
        why: String,
    },
    /// Two statements that cannot both hold, or one that lacks its other half.
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

    /// `name` is none of `known`.
    pub(crate) fn unknown<'a>(
        at: impl Into<String>,
        kind: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let nearest = nearest(name, known).map(str::to_owned);
        Self::Unknown { at: at.into(), kind, name: name.to_owned(), nearest }
    }

    /// What the TOML reader says, with the nearest key where one is unknown.
    pub(crate) fn from_toml(error: &toml::de::Error) -> Self {
        let hint = likeness::hint(error.message());
        Self::Syntax(format!("{}{hint}", error.to_string().trim_end()))
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map(|n| format!("; did you mean `{n}`?")).unwrap_or_default()
}
