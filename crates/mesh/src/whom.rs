//! Members as settings name them.

use std::{fmt, str::FromStr};
use thalweg_wire::mesh::{Member, Name, NameError, Tag};

/// Members that are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// `*`: each member.
    All,
    /// The member of this name.
    Member(Name),
    /// `@TAG`: each with this tag.
    Tagged(Tag),
}

impl Whom {
    /// Whether this member is meant.
    pub fn is(&self, member: &Member) -> bool {
        match self {
            Self::All => true,
            Self::Member(name) => *name == member.name,
            Self::Tagged(tag) => member.tags.contains(tag),
        }
    }
}

impl FromStr for Whom {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.strip_prefix('@') {
            _ if text == "*" => Ok(Self::All),
            Some(tag) => tag.parse().map(Self::Tagged),
            None => text.parse().map(Self::Member),
        }
    }
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Member(name) => write!(f, "{name}"),
            Self::Tagged(tag) => write!(f, "@{tag}"),
        }
    }
}
