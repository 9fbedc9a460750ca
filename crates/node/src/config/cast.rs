//! `[cast]`: casts that this node receives and forwards.

use super::{Problem, text};
use serde::Deserialize;
use std::path::{Component, PathBuf};
use thalweg_cast::{Inbox, Settings};
use thalweg_units::ByteSize;
use thalweg_wire::mesh::MemberPattern;

/// The settings of [`thalweg_cast`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CastSection {
    /// The directories for casts and the members that may send to them; the first match counts.
    pub inbox: Vec<InboxSection>,
    /// Free space to leave on an inbox's file system.
    #[serde(deserialize_with = "text::one")]
    pub keep_free: ByteSize,
    /// The most incomplete casts at a time.
    pub max_casts: usize,
    /// Whether this node forwards casts that are not for it. It keeps only data that is on its way.
    pub relay: bool,
    /// The most memory for all of these casts: rings, manifests and digests, as far as offers tell their sizes. A ring
    /// gets the memory that is left; a cast for whose digests there is none is told to come later.
    #[serde(deserialize_with = "text::one")]
    pub relay_memory: ByteSize,
}

/// A directory where casts are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InboxSection {
    /// An absolute path.
    pub path: PathBuf,
    /// The members that may send casts.
    #[serde(deserialize_with = "text::list")]
    pub from: Vec<MemberPattern>,
    /// The most bytes of one cast; absent: bounded only by the disk.
    #[serde(deserialize_with = "text::option")]
    pub max_bytes: Option<ByteSize>,
    /// Whether sources may set owners and groups of files (`cast --owner`, `--group`); requires that this node runs as
    /// root.
    pub owners: bool,
    /// Whether their symbolic links may point anywhere, even outside the directory.
    pub links: bool,
}

impl Default for CastSection {
    fn default() -> Self {
        let Settings { keep_free, max_casts, relay, relay_memory, .. } = Settings::default();
        Self { inbox: Vec::new(), keep_free, max_casts, relay, relay_memory }
    }
}

impl From<&CastSection> for Settings {
    fn from(section: &CastSection) -> Self {
        let inbox = |inbox: &InboxSection| Inbox {
            path: inbox.path.clone(),
            from: inbox.from.clone(),
            max_bytes: inbox.max_bytes,
            owners: inbox.owners,
            links: inbox.links,
        };
        Self {
            inbox: section.inbox.iter().map(inbox).collect(),
            keep_free: section.keep_free,
            max_casts: section.max_casts,
            relay: section.relay,
            relay_memory: section.relay_memory,
        }
    }
}

impl CastSection {
    /// Directories that this host cannot open: `thalweg node` would not start with them.
    pub fn check_here(&self) -> Vec<Problem> {
        let refused = |(i, inbox): (usize, &InboxSection)| {
            let path = &inbox.path;
            let why = match std::fs::metadata(path) {
                Ok(found) if found.is_dir() => return None,
                Ok(_) => "it is not a directory".to_owned(),
                Err(why) => why.to_string(),
            };
            let what =
                format!("`{}`: {why}; create the directory, or give another one", path.display());
            Some(Problem::of(format!("cast.inbox.{i}.path"), what))
        };
        (1..).zip(&self.inbox).filter_map(refused).collect()
    }
}

/// Reports values that are well-formed but make no sense.
pub(super) fn check(cast: &CastSection, problems: &mut Vec<Problem>) {
    for (i, inbox) in (1..).zip(&cast.inbox) {
        let of = |part: &str, what: String| Problem::of(format!("cast.inbox.{i}.{part}"), what);
        let path = &inbox.path;
        if !path.is_absolute() || path.components().any(|part| part == Component::ParentDir) {
            let what = format!(
                "`{}` is not an absolute path without `..`; write the full path, \
                                beginning with `/`",
                path.display()
            );
            problems.push(of("path", what));
        }
        if inbox.from.is_empty() {
            let what = "no members are given; name members, tags (\"@lab\"), or all (\"*\")";
            problems.push(of("from", format!("`from`: {what}")));
        }
        if inbox.max_bytes == Some(ByteSize::ZERO) {
            let what = "0 accepts nothing; leave it out to limit casts only by the free space";
            problems.push(of("max_bytes", what.to_owned()));
        }
    }
    if cast.max_casts == 0 {
        let what = "0 accepts no casts; to turn casts off, leave out `inbox`";
        problems.push(Problem::of("cast.max_casts", what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_inboxes_are_reported() {
        let here = tempfile::tempdir().unwrap();
        let file = here.path().join("file");
        std::fs::write(&file, "").unwrap();
        let inbox = |path: PathBuf| InboxSection { path, ..InboxSection::default() };
        let paths = [here.path().to_owned(), here.path().join("none"), file];
        let inbox = paths.into_iter().map(inbox).collect();
        let problems = CastSection { inbox, ..CastSection::default() }.check_here();
        let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(keys, ["cast.inbox.2.path", "cast.inbox.3.path"]);
        assert!(problems[0].what.contains("create the directory"), "{}", problems[0]);
        assert!(problems[1].what.contains("not a directory"), "{}", problems[1]);
    }
}
