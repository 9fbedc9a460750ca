//! The tree that is to be: directories, and what is in them.

use super::{
    Failed, Listed,
    layout::{Laid, Origin, ancestors, entry, parent, to_path},
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};
use thalweg_part::{Attributes, PartKey};
use thalweg_wire::object::{Entry, Kind, Snapshot};

/// Files up to this length come and are written whole, and become durable by the batch.
pub(super) const SMALL: u64 = 1 << 20;

/// Directories of a listing that are only on the way to what it names: 300 entries as deep as
/// may be could ask for so many. Nodes list the directories above what a pattern matched, so that
/// an honest one needs a few.
const ON_THE_WAY: usize = 1 << 16;

/// A directory. The first is the one that all is below. It does not know its whole path: those of
/// a deep tree would take more memory than all else.
#[derive(Debug)]
pub(super) struct Directory {
    /// Its index; of the first its own.
    pub(super) parent: u32,
    pub(super) name: OsString,
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
    /// The tree of what was laid out, and what was left out of it. With `owners` their numbers are
    /// kept.
    pub(super) fn of(
        into: PathBuf,
        listed: &[Listed],
        laid: &Laid,
        owners: bool,
    ) -> (Self, Vec<Failed>) {
        let nodes = listed.iter().map(|l| (l.source, l.node.to_string())).collect();
        let first = Directory {
            parent: 0,
            name: OsString::new(),
            source: 0,
            attributes: None,
            is_usable: true,
        };
        let plan = Self { into, directories: vec![first], targets: Vec::new(), nodes };
        let mut maker = Maker {
            plan,
            known: [(&b""[..], 0)].into(),
            on_the_way: BTreeMap::new(),
            failed: Vec::new(),
            listed,
            owners,
        };
        laid.things.iter().for_each(|(path, origin)| maker.put(path, *origin));
        (maker.plan, maker.failed)
    }

    /// A directory's path below the first.
    pub(super) fn below(&self, number: u32) -> PathBuf {
        let mut names = Vec::new();
        let mut at = number;
        // A parent's number is less than its own.
        while let Some(directory) = self.directories.get(at as usize).filter(|_| at > 0) {
            names.push(&directory.name);
            at = directory.parent;
        }
        names.into_iter().rev().collect()
    }

    /// The target's whole path, for people.
    pub(super) fn path(&self, target: &Target) -> PathBuf {
        self.below(target.directory).join(&target.name)
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
    /// Directories by path; what was laid out holds the bytes.
    known: BTreeMap<&'a [u8], u32>,
    /// By listing.
    on_the_way: BTreeMap<u32, usize>,
    failed: Vec<Failed>,
    listed: &'a [Listed],
    owners: bool,
}

impl<'a> Maker<'a> {
    fn put(&mut self, path: &'a [u8], origin: Origin) {
        let Some(entry) = entry(self.listed, origin) else { return };
        let source = self.listed.get(origin.listed as usize).map_or(0, |l| l.source);
        let what = match &entry.kind {
            Kind::File { snapshot } => Some(What::File(*snapshot)),
            Kind::Symlink { target } => Some(What::Link(target.clone())),
            Kind::Directory => None,
            Kind::Special => return,
        };
        let Some(directory) = self.directory(parent(path), origin.listed) else {
            return self.leave_out(path, source);
        };
        let attributes = attributes(entry, self.owners);
        match what {
            None => self.describe(path, directory, source, attributes),
            Some(what) => {
                let name = last(path);
                let target = Target { origin, source, directory, name, what, attributes };
                self.plan.targets.push(target);
            }
        }
    }

    fn leave_out(&mut self, path: &[u8], source: u32) {
        let why = format!(
            "it is in a directory that was not listed, and there are more than {ON_THE_WAY} of \
             those: collect it in several calls"
        );
        self.failed.push(Failed { source, path: to_path(path), why });
    }

    fn describe(&mut self, path: &'a [u8], parent: u32, source: u32, attributes: Attributes) {
        let known = self.known.get(path).copied();
        let number = known.unwrap_or_else(|| self.make(path, parent));
        if let Some(directory) = self.plan.directories.get_mut(number as usize) {
            (directory.source, directory.attributes) = (source, Some(attributes));
        }
    }

    /// The directory's index; it and those above it are there from now on. `None`: that would be
    /// too many which this listing only has on the way.
    fn directory(&mut self, path: &'a [u8], listed: u32) -> Option<u32> {
        if let Some(known) = self.known.get(path) {
            return Some(*known);
        }
        let all = std::iter::once(path).chain(ancestors(path));
        let missing: Vec<_> = all.take_while(|path| !self.known.contains_key(path)).collect();
        let count = self.on_the_way.entry(listed).or_default();
        *count = Some(*count + missing.len()).filter(|count| *count <= ON_THE_WAY)?;
        let above = missing.last().map_or(path, |first| parent(first));
        let above = *self.known.get(above)?;
        Some(missing.into_iter().rev().fold(above, |above, path| self.make(path, above)))
    }

    fn make(&mut self, path: &'a [u8], parent: u32) -> u32 {
        let number = self.plan.directories.len() as u32;
        let source = self.plan.directories.get(parent as usize).map_or(0, |d| d.source);
        let (name, attributes, is_usable) = (last(path), None, true);
        self.plan.directories.push(Directory { parent, name, source, attributes, is_usable });
        self.known.insert(path, number);
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
