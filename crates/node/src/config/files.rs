//! `[files]`: which files other members may read or leave here.

use super::{Problem, text};
use serde::Deserialize;
use std::path::{Component, Path, PathBuf};
use thalweg_base::space::KeepFree;
use thalweg_files::{AcceptingDirectory, Limits, OfferedDirectory, Settings};
use thalweg_units::ByteSize;
use thalweg_wire::mesh::MemberPattern;

/// The settings of [`thalweg_files`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilesSection {
    /// Directories that members may read.
    pub offer: Vec<OfferSection>,
    /// Directories that members may write new files into.
    pub accept: Vec<AcceptSection>,
    /// The space for data that this node holds on its way between other members.
    #[serde(deserialize_with = "text::one")]
    pub spool_bytes: ByteSize,
    /// Free space to leave on the disks of the spool and of the accepting directories; absent: the default.
    #[serde(deserialize_with = "text::option")]
    pub keep_free: Option<ByteSize>,
    /// The most channels at a time.
    pub max_channels: usize,
}

/// A directory that members may read, with all below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OfferSection {
    /// An absolute path.
    pub path: PathBuf,
    /// The members that may read it.
    #[serde(deserialize_with = "text::list")]
    pub to: Vec<MemberPattern>,
}

/// A directory that members may write new files into.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcceptSection {
    /// An absolute path.
    pub path: PathBuf,
    /// The members that may write there.
    #[serde(deserialize_with = "text::list")]
    pub from: Vec<MemberPattern>,
    /// Whether they may replace existing files (`send --replace`).
    pub replace: bool,
    /// Whether they may remove existing files (`send --delete`).
    pub remove: bool,
    /// Whether they may set owners and groups of files (`send --owner`, `--group`); requires that this node runs as
    /// root.
    pub owners: bool,
    /// Whether their symbolic links may point anywhere, even outside the directory.
    pub links: bool,
    /// The most bytes there; absent: bounded only by the disk.
    #[serde(deserialize_with = "text::option")]
    pub max_bytes: Option<ByteSize>,
    /// The most files, directories and links there.
    pub max_entries: u64,
    /// The most nested directories.
    pub max_depth: usize,
    /// Free space to leave on its disk; absent: as for all directories.
    #[serde(deserialize_with = "text::option")]
    pub keep_free: Option<ByteSize>,
}

impl Default for AcceptSection {
    fn default() -> Self {
        let Limits { max_entries, max_depth, .. } = Limits::default();
        Self {
            path: PathBuf::new(),
            from: Vec::new(),
            replace: false,
            remove: false,
            owners: false,
            links: false,
            max_bytes: None,
            max_entries,
            max_depth,
            keep_free: None,
        }
    }
}

impl Default for FilesSection {
    fn default() -> Self {
        let Settings { spool_bytes, max_channels, .. } = Settings::default();
        Self { offer: Vec::new(), accept: Vec::new(), spool_bytes, keep_free: None, max_channels }
    }
}

impl From<&FilesSection> for Settings {
    fn from(section: &FilesSection) -> Self {
        let offered =
            |o: &OfferSection| OfferedDirectory { path: o.path.clone(), members: o.to.clone() };
        let accepting = |a: &AcceptSection| AcceptingDirectory {
            path: a.path.clone(),
            members: a.from.clone(),
            replace: a.replace,
            remove: a.remove,
            owners: a.owners,
            links: a.links,
            limits: Limits {
                max_bytes: a.max_bytes,
                max_entries: a.max_entries,
                max_depth: a.max_depth,
                keep_free: kept_free(a.keep_free.or(section.keep_free)),
            },
        };
        Self {
            offer: section.offer.iter().map(offered).collect(),
            accept: section.accept.iter().map(accepting).collect(),
            protected: Vec::new(),
            spool_bytes: section.spool_bytes,
            max_channels: section.max_channels,
        }
    }
}

fn kept_free(bytes: Option<ByteSize>) -> KeepFree {
    bytes.map_or(KeepFree::Usual, KeepFree::Bytes)
}

impl FilesSection {
    /// The free space to leave on the spool's disk.
    pub fn keep_free(&self) -> KeepFree {
        kept_free(self.keep_free)
    }

    /// Directories that this host cannot open: `thalweg node` would not start with them.
    pub fn check_here(&self) -> Vec<Problem> {
        let offers = (1..).zip(&self.offer).map(|(i, o)| (format!("offer.{i}"), &o.path));
        let accepts = (1..).zip(&self.accept).map(|(i, a)| (format!("accept.{i}"), &a.path));
        let refused = |(key, path): (String, &PathBuf)| {
            let why = match std::fs::read_dir(path) {
                Ok(_) => return None,
                Err(why) => why,
            };
            let what =
                format!("`{}`: {why}; create the directory, or give another one", path.display());
            Some(Problem::of(format!("files.{key}.path"), what))
        };
        offers.chain(accepts).filter_map(refused).collect()
    }
}

/// Reports values that are well-formed but make no sense.
pub(super) fn check(files: &FilesSection, problems: &mut Vec<Problem>) {
    let offers = (1..).zip(&files.offer).map(|(i, o)| (format!("offer.{i}"), &o.path, "to", &o.to));
    let accepts = (1..).zip(&files.accept);
    let accepts = accepts.map(|(i, a)| (format!("accept.{i}"), &a.path, "from", &a.from));
    for (key, path, whose, whom) in offers.chain(accepts) {
        let of = |part: &str, what: String| Problem::of(format!("files.{key}.{part}"), what);
        if let Some(why) = path_problem(path) {
            problems.push(of("path", format!("`{}` {why}", path.display())));
        }
        if whom.is_empty() {
            let what = "no members are given; name members, tags (\"@lab\"), or all (\"*\")";
            problems.push(of(whose, format!("`{whose}`: {what}")));
        }
    }
    if files.max_channels == 0 {
        let what = "0 serves no member; to offer no files, leave out `offer`";
        problems.push(Problem::of("files.max_channels", what));
    }
}

/// Why this directory cannot be opened to others.
fn path_problem(path: &Path) -> Option<&'static str> {
    if path.as_os_str().is_empty() {
        return Some("is not a path; give `path`");
    }
    if !path.is_absolute() {
        return Some("is not an absolute path; write the full path, beginning with `/`");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Some("contains `..`; write the path without it");
    }
    let system = ["/proc", "/sys", "/dev"].iter().any(|dir| path.starts_with(dir));
    system.then_some("contains only files of the kernel; give a directory with data")
}
