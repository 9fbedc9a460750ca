//! The tree to create: directories, and their contents.

use super::{
    FailedItem, Listing,
    hard_links::{HardLink, HardLinks},
    layout::{NamedItems, Origin, ancestors, entry, parent, to_path},
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    ops::Range,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};
use thalweg_part::{
    Attributes, Fidelity, FileMetadata, Owner, PartKey, Ranges, gives_away,
    names::IdMap,
    xattr::{AttributeOrigin, CAPABILITY},
};
use thalweg_wire::object::{Entry, ExtraMetadata, Keep, Kind, Snapshot};

/// The maximum size of a small file, bytes. Small files are written whole, and become durable in batches.
pub(super) const SMALL: u64 = 1 << 20;

/// The maximum number of unlisted parent directories per listing; 300 entries of maximum depth could require that many.
/// Nodes list the directories above a pattern's matches, so an honest one needs only a few.
const ON_THE_WAY: usize = 1 << 16;

/// A directory; the first one is the target of the collection. It does not store its whole path: the paths of a deep
/// tree would take more memory than everything else.
#[derive(Debug)]
pub(super) struct Directory {
    /// The index of its parent; the first directory is its own parent.
    pub(super) parent: u32,
    pub(super) name: OsString,
    /// The source that listed it; an unlisted directory has that of its parent, and the first one has 0.
    pub(super) source: u32,
    /// `None`: it is not listed, but is a parent of a listed item.
    pub(super) attributes: Option<Attributes>,
    /// Metadata that few items have.
    pub(super) more: Option<Box<ExtraMetadata>>,
    /// It exists here with another mode, owner, time or extended attribute.
    pub(super) differs: bool,
    /// Its original mode, if its owner could not enter it and got all rights until the end.
    pub(super) was: Option<u16>,
    /// Whether it exists or can be created.
    pub(super) is_usable: bool,
}

/// The content of a target.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    File(Snapshot),
    Link(Vec<u8>),
}

/// A file or symbolic link to create.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) origin: Origin,
    pub(super) source: u32,
    pub(super) directory: u32,
    pub(super) name: OsString,
    pub(super) content: Content,
    pub(super) attributes: Attributes,
    /// Metadata that few items have.
    pub(super) more: Option<Box<ExtraMetadata>>,
}

impl Target {
    /// Its size, bytes; 0 for a link.
    pub(super) fn size(&self) -> u64 {
        match &self.content {
            Content::File(snapshot) => snapshot.size,
            Content::Link(_) => 0,
        }
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self.content, Content::File(_))
    }

    pub(super) fn is_small(&self) -> bool {
        self.size() <= SMALL
    }

    /// The metadata to set on it.
    pub(super) fn metadata(&self, keep: Keep) -> FileMetadata<'_> {
        metadata_of(self.attributes, self.more.as_deref(), keep)
    }

    /// Whether the source reported that it has no permission to read it.
    pub(super) fn is_unreadable(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.is_unreadable)
    }

    /// Holes that need not be sent; empty for a small file. `None`: it is not sparse.
    pub(super) fn holes(&self) -> Option<&[(u64, u64)]> {
        let holes = self.more.as_ref()?.holes.as_deref()?;
        Some(if self.is_small() { &[] } else { holes })
    }

    /// All ranges to fetch.
    pub(super) fn data(&self) -> Vec<Range<u64>> {
        self.missing(Ranges::default())
    }

    /// The ranges to fetch if `here` is already present.
    pub(super) fn missing(&self, mut here: Ranges) -> Vec<Range<u64>> {
        self.holes().into_iter().flatten().for_each(|(from, to)| here.insert(*from..*to));
        here.missing(self.size())
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct TreePlan {
    /// The target directory, as the user named it.
    pub(super) into: PathBuf,
    /// Parents before their contents.
    pub(super) directories: Vec<Directory>,
    pub(super) targets: Vec<Target>,
    /// The sources' names.
    pub(super) nodes: BTreeMap<u32, String>,
    /// Further names (hard links) of files that are targets.
    pub(super) links: Vec<HardLink>,
    /// The extended attributes to keep.
    pub(super) keep: Keep,
}

impl TreePlan {
    /// Creates the plan of a layout; also returns the entries that were dropped, with the reasons.
    pub(super) fn build(
        into: PathBuf,
        listed: &[Listing],
        items: &NamedItems,
        fidelity: Fidelity,
    ) -> (Self, Vec<FailedItem>) {
        let nodes = listed.iter().map(|l| (l.source, l.node.to_string())).collect();
        let first = Directory {
            parent: 0,
            name: OsString::new(),
            source: 0,
            attributes: None,
            more: None,
            differs: false,
            was: None,
            is_usable: true,
        };
        let plan = Self {
            into,
            directories: vec![first],
            targets: Vec::new(),
            nodes,
            links: Vec::new(),
            keep: fidelity.attributes(),
        };
        let mut builder = PlanBuilder {
            plan,
            known: [(&b""[..], 0)].into(),
            on_the_way: BTreeMap::new(),
            failed: Vec::new(),
            listed,
            numbers: numbers(listed, fidelity),
            fidelity,
            hard_links: fidelity.hard_links.then(HardLinks::default),
        };
        items.things.iter().for_each(|(path, origin)| builder.put(path, *origin));
        (builder.plan, builder.failed)
    }

    /// Records directories that got full owner rights, with their original modes.
    pub(super) fn record_opened(&mut self, opened: &[(u32, u16)]) {
        for (number, mode) in opened {
            if let Some(directory) = self.directories.get_mut(*number as usize) {
                directory.was = Some(*mode);
            }
        }
    }

    /// The path of a directory below the first.
    pub(super) fn below(&self, number: u32) -> PathBuf {
        let mut names = Vec::new();
        let mut at = number;
        // The number of a parent is less than that of its child.
        while let Some(directory) = self.directories.get(at as usize).filter(|_| at > 0) {
            names.push(&directory.name);
            at = directory.parent;
        }
        names.into_iter().rev().collect()
    }

    /// The target's whole path, for messages.
    pub(super) fn path(&self, target: &Target) -> PathBuf {
        self.below(target.directory).join(&target.name)
    }

    /// The key that identifies the part of a large file.
    pub(super) fn key(&self, target: &Target) -> Option<PartKey> {
        let Content::File(snapshot) = target.content else { return None };
        let node = self.nodes.get(&target.source).cloned().unwrap_or_default();
        Some(PartKey::Listed { node, snapshot })
    }
}

struct PlanBuilder<'a> {
    plan: TreePlan,
    /// Directories by path; the layout holds the bytes of the paths.
    known: BTreeMap<&'a [u8], u32>,
    /// Unlisted parent directories by listing.
    on_the_way: BTreeMap<u32, usize>,
    failed: Vec<FailedItem>,
    listed: &'a [Listing],
    /// Numeric owners by listing.
    numbers: Vec<IdMap>,
    fidelity: Fidelity,
    hard_links: Option<HardLinks>,
}

impl<'a> PlanBuilder<'a> {
    fn put(&mut self, path: &'a [u8], origin: Origin) {
        let Some(entry) = entry(self.listed, origin) else { return };
        let source = self.listed.get(origin.listed as usize).map_or(0, |l| l.source);
        let content = match &entry.kind {
            Kind::File { snapshot } => Some(Content::File(*snapshot)),
            Kind::Symlink { target } => Some(Content::Link(target.clone())),
            Kind::Directory => None,
            Kind::Special => return,
        };
        let Some(directory) = self.directory(parent(path), origin.listed) else {
            return self.leave_out(path, source);
        };
        let Some(numbers) = self.numbers.get(origin.listed as usize) else { return };
        let attributes = attributes(entry, numbers, self.fidelity);
        let mut more = entry.more.clone();
        if let Some(more) = &mut more {
            numbers.localize_xattrs(&mut more.xattrs);
            if !self.fidelity.set_id {
                more.xattrs.retain(|xattr| xattr.name != CAPABILITY);
            }
        }
        let Some(content) = content else {
            return self.describe(path, directory, source, attributes, more);
        };
        let name = last(path);
        let target = Target { origin, source, directory, name, content, attributes, more };
        match self.hard_links.as_mut().and_then(|known| known.first_of(&target)) {
            Some(first) => {
                self.plan.links.push(HardLink { source, directory, name: target.name, first })
            }
            None => self.plan.targets.push(target),
        }
    }

    fn leave_out(&mut self, path: &[u8], source: u32) {
        let why = format!(
            "its parent directory was not listed, and more than {ON_THE_WAY} such directories are \
             missing from the listing: collect it in several calls"
        );
        self.failed.push(FailedItem { source, path: to_path(path), why });
    }

    fn describe(
        &mut self,
        path: &'a [u8],
        parent: u32,
        source: u32,
        attributes: Attributes,
        more: Option<Box<ExtraMetadata>>,
    ) {
        let known = self.known.get(path).copied();
        let number = known.unwrap_or_else(|| self.make(path, parent));
        if let Some(directory) = self.plan.directories.get_mut(number as usize) {
            (directory.source, directory.attributes) = (source, Some(attributes));
            directory.more = more;
        }
    }

    /// Returns the directory's index, and creates it and its parents in the plan if necessary. `None`: the listing
    /// would exceed the limit of unlisted directories.
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
        let (more, was) = (None, None);
        let differs = false;
        let new = Directory { parent, name, source, attributes, more, differs, was, is_usable };
        self.plan.directories.push(new);
        self.known.insert(path, number);
        number
    }
}

fn last(path: &[u8]) -> OsString {
    OsString::from_vec(path.rsplit(|b| *b == b'/').next().unwrap_or(b"").to_vec())
}

/// The mapping of each listing's owners to numeric ids of this host.
fn numbers(listed: &[Listing], fidelity: Fidelity) -> Vec<IdMap> {
    let of = |of: &Listing| match fidelity.numeric_ids {
        true => IdMap::default(),
        false => IdMap::from_owners(&of.owners),
    };
    listed.iter().map(of).collect()
}

/// Which attributes of an entry are kept. Set-id bits of files are dropped unless requested, because the source alone
/// chooses them and a program with root's rights is more than a copy of a file. They are also dropped if the owner is
/// not kept, since they would grant another user's rights than intended. (`rsync` keeps them.)
fn attributes(entry: &Entry, numbers: &IdMap, fidelity: Fidelity) -> Attributes {
    let is_file = matches!(entry.kind, Kind::File { .. });
    let kept = |is_wanted: bool, id: u32| (is_wanted && gives_away()).then_some(id);
    let owner = Owner {
        user: kept(fidelity.owner, numbers.user(entry.owner)),
        group: kept(fidelity.group, numbers.group(entry.group)),
    };
    let keeps_bits = !is_file || fidelity.set_id && owner.is_complete();
    let mode = if keeps_bits { entry.mode & 0o7777 } else { entry.mode & 0o1777 };
    Attributes { mode, owner, modified: entry.modified }
}

/// The metadata to set for an entry.
pub(super) fn metadata_of(
    attributes: Attributes,
    more: Option<&ExtraMetadata>,
    keep: Keep,
) -> FileMetadata<'_> {
    let xattrs = more.map_or(&[][..], |more| &more.xattrs);
    FileMetadata { attributes, xattrs, keep, origin: AttributeOrigin::User }
}

/// The temporary name of a target: `tag` identifies the landing, `number` the target.
pub(super) fn temporary(tag: u32, number: u32) -> OsString {
    format!(".thalweg-{tag:08x}-{number:x}").into()
}

/// Whether `name` is such a name of the landing with this tag.
pub(super) fn is_temporary(tag: u32, name: &OsStr) -> bool {
    name.as_bytes().starts_with(format!(".thalweg-{tag:08x}-").as_bytes())
}
