//! The client's name for a submitted file.

use crate::file_name;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// A file name that is safe in any directory: [`file_name::safe`] leaves it unchanged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(Box<str>);

/// The text is not a safe name; contains the safe name for it, if there is one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the name has characters that are not allowed in a file name{}", suggested(.0))]
pub struct LabelError(Option<String>);

fn suggested(name: &Option<String>) -> String {
    name.as_ref().map(|name| format!("; use `{name}`")).unwrap_or_default()
}

impl Label {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The safe name for `text`; `None` if nothing is left of it.
    pub fn near(text: &str) -> Option<Self> {
        file_name::safe(text).and_then(|name| name.parse().ok())
    }
}

impl FromStr for Label {
    type Err = LabelError;
    fn from_str(text: &str) -> Result<Self, LabelError> {
        match file_name::safe(text) {
            Some(safe) if safe == text => Ok(Self(text.into())),
            other => Err(LabelError(other)),
        }
    }
}

impl TryFrom<String> for Label {
    type Error = LabelError;
    fn try_from(text: String) -> Result<Self, LabelError> {
        text.parse()
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.0.into()
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_safe_name_is_a_label(text: String) {
            if let Some(label) = Label::near(&text) {
                prop_assert_eq!(label.as_str().parse(), Ok(label.clone()));
                prop_assert!(!label.as_str().contains(['/', '\n', '\0']));
            }
        }
    }

    #[test]
    fn only_safe_names_are_labels() {
        assert!("return 2026.pdf".parse::<Label>().is_ok());
        for bad in ["", "..", "a/b", "a\nb", " a", "a ", "-rf", ".x"] {
            assert!(bad.parse::<Label>().is_err(), "{bad:?}");
        }
    }
}
