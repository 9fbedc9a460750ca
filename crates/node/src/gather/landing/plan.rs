//! The tree that is to be: directories, and what is in them.

use super::{
    Listed,
    layout::{Laid, Origin, entry, parent, to_path},
};
use crate::part::{Attributes, PartKey};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};
use thalweg_wire::object::{Entry, Kind, Snapshot};

/// Files up to this length come and are written whole, and become durable by the batch.
pub(super) const SMALL: u64 = 1 << 20;

/// A directory. The first is the one that all is below.
#[derive(Debug)]
pub(super) struct Directory {
    /// Its index; of the first its own.
    pub(super) parent: u32,
    pub(super) name: OsString,
    /// Below the first.
    pub(super) path: PathBuf,
    /// Who has it; 0 if it is ours alone.
    pub(super) source: u32,
    /// `None`: it is not listed, only on the way.
    pub(super) attributes: Option<Attributes>,
    /// It is here, or can be.
    pub(super) is_usable: bool,
}

/// What a target is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    File(Snapshot),
    Link(Vec<u8>),
}

/// A file or symbolic link that is to be.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) origin: Origin,
    pub(super) source: u32,
    pub(super) directory: u32,
    pub(super) name: OsString,
    pub(super) what: What,
    pub(super) attributes: Attributes,
}

impl Target {
    /// Bytes; of a link none.
    pub(super) fn size(&self) -> u64 {
        match &self.what {
            What::File(snapshot) => snapshot.size,
            What::Link(_) => 0,
        }
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.what, What::File(_))
    }

    pub(super) fn is_small(&self) -> bool {
        self.size() <= SMALL
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Plan {
    /// As the user named it.
    pub(super) into: PathBuf,
    /// Parents before what is in them.
    pub(super) directories: Vec<Directory>,
    pub(super) targets: Vec<Target>,
    /// The sources' names.
    pub(super) nodes: BTreeMap<u32, String>,
}

impl Plan {
    /// The tree of what was laid out. With `owners` their numbers are kept.
    pub(super) fn of(into: PathBuf, listed: &[Listed], laid: &Laid, owners: bool) -> Self {
        let nodes = listed.iter().map(|l| (l.source, l.node.to_string())).collect();
        let first = Directory {
            parent: 0,
            name: OsString::new(),
            path: PathBuf::new(),
            source: 0,
            attributes: None,
            is_usable: true,
        };
        let plan = Self { into, directories: vec![first], targets: Vec::new(), nodes };
        let mut maker = Maker { plan, known: [(Vec::new(), 0)].into(), listed, owners };
        laid.things.iter().for_each(|(path, origin)| maker.put(path, *origin));
        maker.plan
    }

    /// The target's whole path, for people.
    pub(super) fn path(&self, target: &Target) -> PathBuf {
        let directory = self.directories.get(target.directory as usize);
        directory.map_or_else(PathBuf::new, |d| d.path.join(&target.name))
    }

    /// What a large file in the making is known by.
    pub(super) fn key(&self, target: &Target) -> Option<PartKey> {
        let What::File(snapshot) = target.what else { return None };
        let node = self.nodes.get(&target.source).cloned().unwrap_or_default();
        Some(PartKey::Listed { node, snapshot })
    }
}

struct Maker<'a> {
    plan: Plan,
    /// Directories by path.
    known: BTreeMap<Vec<u8>, u32>,
    listed: &'a [Listed],
    owners: bool,
}

impl Maker<'_> {
    fn put(&mut self, path: &[u8], origin: Origin) {
        let Some(entry) = entry(self.listed, origin) else { return };
        let source = self.listed.get(origin.listed as usize).map_or(0, |l| l.source);
        let attributes = attributes(entry, self.owners);
        let what = match &entry.kind {
            Kind::File { snapshot } => What::File(*snapshot),
            Kind::Symlink { target } => What::Link(target.clone()),
            Kind::Directory => return self.describe(path, source, attributes),
            Kind::Special => return,
        };
        let directory = self.directory(parent(path));
        let name = last(path);
        self.plan.targets.push(Target { origin, source, directory, name, what, attributes });
    }

    fn describe(&mut self, path: &[u8], source: u32, attributes: Attributes) {
        let number = self.directory(path);
        if let Some(directory) = self.plan.directories.get_mut(number as usize) {
            (directory.source, directory.attributes) = (source, Some(attributes));
        }
    }

    /// The directory's index; it and those above it are there from now on.
    fn directory(&mut self, path: &[u8]) -> u32 {
        if let Some(known) = self.known.get(path) {
            return *known;
        }
        let parent = self.directory(parent(path));
        let number = self.plan.directories.len() as u32;
        let source = self.plan.directories.get(parent as usize).map_or(0, |d| d.source);
        let (name, whole) = (last(path), to_path(path));
        let (attributes, is_usable) = (None, true);
        let new = Directory { parent, name, path: whole, source, attributes, is_usable };
        self.plan.directories.push(new);
        self.known.insert(path.to_vec(), number);
        number
    }
}

fn last(path: &[u8]) -> OsString {
    OsString::from_vec(path.rsplit(|b| *b == b'/').next().unwrap_or(b"").to_vec())
}

/// What is kept of an entry. Without the owner a file's set-id bits would give somebody else's
/// rights than meant: they go. (`rsync` keeps them.)
fn attributes(entry: &Entry, owners: bool) -> Attributes {
    let is_file = matches!(entry.kind, Kind::File { .. });
    let mode = if is_file && !owners { entry.mode & 0o1777 } else { entry.mode & 0o7777 };
    let owner = owners.then_some((entry.owner, entry.group));
    Attributes { mode, owner, modified_ns: entry.modified_ns }
}

/// A name of our own in a directory: `tag` tells landings, `number` targets.
pub(super) fn temporary(tag: u32, number: u32) -> OsString {
    format!(".thalweg-{tag:08x}-{number:x}").into()
}

/// Whether `name` is such a name of the landing with this tag.
pub(super) fn is_temporary(tag: u32, name: &OsStr) -> bool {
    name.as_bytes().starts_with(format!(".thalweg-{tag:08x}-").as_bytes())
}
