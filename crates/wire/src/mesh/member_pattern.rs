//! Patterns for members, used in settings and by publishers.

use super::{Member, Name, NameError, Tag};
use std::{fmt, str::FromStr};

/// A pattern that matches members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberPattern {
    All,
    /// The member with this name.
    Member(Name),
    /// `@TAG`: the members with this tag.
    Tagged(Tag),
}

impl MemberPattern {
    /// Whether the pattern matches this member.
    pub fn matches(&self, member: &Member) -> bool {
        match self {
            Self::All => true,
            Self::Member(name) => *name == member.name,
            Self::Tagged(tag) => member.tags.contains(tag),
        }
    }
}

impl FromStr for MemberPattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.strip_prefix('@') {
            _ if text == "*" => Ok(Self::All),
            Some(tag) => tag.parse().map(Self::Tagged),
            None => text.parse().map(Self::Member),
        }
    }
}

impl fmt::Display for MemberPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Member(name) => write!(f, "{name}"),
            Self::Tagged(tag) => write!(f, "@{tag}"),
        }
    }
}
