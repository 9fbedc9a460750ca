//! `[files]`: which files other members may read or leave here.

use super::{Problem, text};
use serde::Deserialize;
use std::{
    fmt,
    path::{Component, Path, PathBuf},
    str::FromStr,
};
use thalweg_units::ByteSize;
use thalweg_wire::mesh::{Member, Name, NameError, Tag};

/// The settings of [`crate::files`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilesSection {
    /// Directories that members may read.
    pub offer: Vec<OfferSection>,
    /// Directories that members may write new files into.
    pub accept: Vec<AcceptSection>,
    /// For what this node holds on its way between other members.
    #[serde(deserialize_with = "text::one")]
    pub spool_bytes: ByteSize,
    /// Channels at a time.
    pub max_channels: usize,
}

/// A directory that members may read, with all below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OfferSection {
    /// Absolute.
    pub path: PathBuf,
    /// Who.
    #[serde(deserialize_with = "text::list")]
    pub to: Vec<Whom>,
}

/// A directory that members may write new files into.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcceptSection {
    /// Absolute.
    pub path: PathBuf,
    /// Who.
    #[serde(deserialize_with = "text::list")]
    pub from: Vec<Whom>,
}

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

impl Default for FilesSection {
    fn default() -> Self {
        Self {
            offer: Vec::new(),
            accept: Vec::new(),
            spool_bytes: ByteSize::from_bytes(10_000_000_000),
            // Each may hold two buffers of 256 KiB: 64 MiB in all.
            max_channels: 128,
        }
    }
}

impl FilesSection {
    /// What this host cannot open: `thalweg node` would not start with it.
    pub fn check_here(&self) -> Vec<Problem> {
        let offers = (1..).zip(&self.offer).map(|(i, o)| (format!("offer.{i}"), &o.path));
        let accepts = (1..).zip(&self.accept).map(|(i, a)| (format!("accept.{i}"), &a.path));
        let refused = |(key, path): (String, &PathBuf)| {
            let why = match std::fs::read_dir(path) {
                Ok(_) => return None,
                Err(why) => why,
            };
            let what = format!("`{}`: {why}; make the directory, or name another", path.display());
            Some(Problem::of(format!("files.{key}.path"), what))
        };
        offers.chain(accepts).filter_map(refused).collect()
    }
}

/// What is well-formed, and yet cannot be meant.
pub(super) fn check(files: &FilesSection, problems: &mut Vec<Problem>) {
    let offers = (1..).zip(&files.offer).map(|(i, o)| (format!("offer.{i}"), &o.path, "to", &o.to));
    let accepts = (1..).zip(&files.accept);
    let accepts = accepts.map(|(i, a)| (format!("accept.{i}"), &a.path, "from", &a.from));
    for (key, path, whose, whom) in offers.chain(accepts) {
        let of = |part: &str, what: String| Problem::of(format!("files.{key}.{part}"), what);
        if let Some(why) = unfit(path) {
            problems.push(of("path", format!("`{}` {why}", path.display())));
        }
        if whom.is_empty() {
            let what = "it is for nobody; name members, tags (\"@lab\"), or all (\"*\")";
            problems.push(of(whose, format!("`{whose}`: {what}")));
        }
    }
    if files.max_channels == 0 {
        let what =
            "with no channel at a time nobody is served; to offer nothing, leave out `offer`";
        problems.push(Problem::of("files.max_channels", what));
    }
}

/// Why this directory is none that can be opened to others.
fn unfit(path: &Path) -> Option<&'static str> {
    if path.as_os_str().is_empty() {
        return Some("is no path; give `path`");
    }
    if !path.is_absolute() {
        return Some("is not absolute; write it from `/` on");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Some("goes up by `..`; write where it leads to");
    }
    let system = ["/proc", "/sys", "/dev"].iter().any(|dir| path.starts_with(dir));
    system.then_some("holds no files but the kernel's own; offer a directory with data")
}
