//! Assigns each listed item its name below the directory, and detects collisions. Pure.

use super::{Collision, FailedItem, Layout, Listing, PassedOver};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
};
use thalweg_wire::object::{self, Entry, Kind, is_reserved};

/// The maximum number of components of a path below the directory. Real paths have a few tens; a 4 KiB path could have
/// 2,048 directories, each to be created and held in memory, for one entry of a listing.
pub(super) const DEEPEST: usize = 256;

/// Where an item was listed: the index of the listing, and of the entry in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) listed: u32,
    pub(super) entry: u32,
}

/// The names of all items.
#[derive(Debug, Default)]
pub(super) struct NamedItems {
    /// Items by the path below the directory; parents come before their contents.
    pub(super) things: BTreeMap<Vec<u8>, Origin>,
    pub(super) failed: Vec<FailedItem>,
    /// Items that are not collected on purpose, by source and path.
    pub(super) passed_over: BTreeSet<PassedOver>,
    collisions: Vec<Collision>,
}

/// Why an entry gets no name here.
enum Unnamed {
    PassedOver(PassedOver),
    Failed(FailedItem),
}

impl NamedItems {
    /// Assigns the names.
    ///
    /// # Errors
    ///
    /// Returns all collisions.
    pub(super) fn assign_names(listed: &[Listing], layout: Layout) -> Result<Self, Vec<Collision>> {
        let mut items = Self::default();
        for (number, of) in (0..).zip(listed) {
            let prefixes: Vec<_> = of.roots.iter().map(|root| prefix(of, root, layout)).collect();
            for (entry, found) in (0..).zip(&of.entries) {
                let origin = Origin { listed: number, entry };
                match name(of, &prefixes, found) {
                    Ok(path) => items.put(listed, path, origin),
                    Err(Unnamed::Failed(failed)) => items.failed.push(failed),
                    Err(Unnamed::PassedOver(passed)) => _ = items.passed_over.insert(passed),
                }
            }
            items.failed.extend(of.failed.iter().map(|(path, why)| FailedItem {
                source: of.source,
                path: to_path(path),
                why: why.to_string(),
            }));
        }
        items.find_parent_collisions(listed);
        if items.collisions.is_empty() { Ok(items) } else { Err(items.collisions) }
    }

    fn put(&mut self, listed: &[Listing], path: Vec<u8>, origin: Origin) {
        match self.things.get(&path).copied() {
            Some(known) if are_compatible(listed, known, origin) => {}
            Some(known) => self.collide(listed, &path, known, origin),
            None => _ = self.things.insert(path, origin),
        }
    }

    /// Finds items below a path that is not a directory.
    fn find_parent_collisions(&mut self, listed: &[Listing]) {
        let mut met = Vec::new();
        let mut last: &[u8] = b"";
        for (path, origin) in &self.things {
            let parent = parent(path);
            if parent == last {
                continue;
            }
            last = parent;
            let above = ancestors(path).find_map(|above| self.things.get_key_value(above));
            if let Some((above, known)) = above.filter(|(_, o)| !is_directory(listed, **o)) {
                met.push((above.clone(), *known, *origin));
            }
        }
        met.into_iter().for_each(|(path, one, other)| self.collide(listed, &path, one, other));
    }

    fn collide(&mut self, listed: &[Listing], path: &[u8], one: Origin, other: Origin) {
        let (one, other) = (said(listed, one), said(listed, other));
        self.collisions.push(Collision { path: to_path(path), one, other });
    }
}

/// The entry of an origin.
pub(super) fn entry(listed: &[Listing], origin: Origin) -> Option<&Entry> {
    listed.get(origin.listed as usize)?.entries.get(origin.entry as usize)
}

/// Converts bytes to a path.
pub(super) fn to_path(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

/// The parent directory of `path`; empty for items in the first directory.
pub(super) fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(b"", |at| &path[..at])
}

/// All directories above `path`, the nearest first, without the first directory.
pub(super) fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    fn up(path: &[u8]) -> Option<&[u8]> {
        Some(parent(path)).filter(|above| !above.is_empty())
    }
    std::iter::successors(up(path), |path| up(path))
}

fn is_directory(listed: &[Listing], origin: Origin) -> bool {
    entry(listed, origin).is_some_and(|entry| entry.kind == Kind::Directory)
}

/// Whether two items under one name are compatible: directories are merged, and overlapping paths of one source list
/// the same item twice.
fn are_compatible(listed: &[Listing], a: Origin, b: Origin) -> bool {
    let source = |o: Origin| listed.get(o.listed as usize).map(|l| l.source);
    match (entry(listed, a), entry(listed, b)) {
        (Some(one), Some(other)) => {
            let directories = one.kind == Kind::Directory && other.kind == Kind::Directory;
            directories || (source(a) == source(b) && one.kind == other.kind)
        }
        _ => true,
    }
}

/// `NODE:PATH`, made printable.
fn said(listed: &[Listing], origin: Origin) -> String {
    let Some(of) = listed.get(origin.listed as usize) else { return String::new() };
    let Some(entry) = of.entries.get(origin.entry as usize) else { return String::new() };
    let root = of.roots.get(entry.root as usize).map_or(&b""[..], Vec::as_slice);
    let base = to_path(object::base(root)).join(to_path(entry.path.as_bytes()));
    format!("{}:{}", of.node, base.to_string_lossy().trim_end_matches('/').escape_debug())
}

/// The prefix of the paths of a root's entries.
fn prefix(of: &Listing, root: &[u8], layout: Layout) -> Vec<u8> {
    let mut prefix = match layout {
        Layout::ByNode => of.node.as_str().as_bytes().to_vec(),
        Layout::Flat => Vec::new(),
    };
    push(&mut prefix, own_name(root));
    prefix
}

/// The name of the requested item; empty if its contents are requested.
fn own_name(root: &[u8]) -> &[u8] {
    let last = root.rsplit(|b| *b == b'/').next().unwrap_or(b"");
    // Like `/data/`, `/data/.` and `/data/..` request the contents.
    let content = object::pattern(root).is_some() || matches!(last, b"." | b"..");
    if content { b"" } else { last }
}

/// The path up to its first component that is Thalweg's own; everything below it is left out too.
fn own_part(path: &[u8]) -> Option<&[u8]> {
    let mut end = 0;
    for part in path.split(|b| *b == b'/') {
        end += part.len();
        if is_reserved(part) {
            return path.get(..end);
        }
        end += 1;
    }
    None
}

fn push(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() && !name.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

/// Returns the name of an entry, or why it is left out.
fn name(of: &Listing, prefixes: &[Vec<u8>], entry: &Entry) -> Result<Vec<u8>, Unnamed> {
    let mut path = prefixes.get(entry.root as usize).cloned().unwrap_or_default();
    push(&mut path, entry.path.as_bytes());
    let refused = |why: &str, path: &[u8]| {
        Err(Unnamed::Failed(FailedItem { source: of.source, path: to_path(path), why: why.into() }))
    };
    let passed_over = |path: &[u8], is_ours| {
        let path = to_path(path);
        Err(Unnamed::PassedOver(PassedOver { source: of.source, path, is_ours }))
    };
    if entry.root as usize >= prefixes.len() {
        return refused("the listing contains a path that was not requested", &path);
    }
    if entry.path.as_bytes().is_empty() && entry.kind != Kind::Directory {
        // `/data/` was requested and `/data` is a file.
        let root = of.roots.get(entry.root as usize).map_or(&b""[..], Vec::as_slice);
        if own_name(root).is_empty() {
            return refused("it was requested as a directory, but it is not a directory", root);
        }
    }
    if let Some(own) = own_part(&path) {
        return passed_over(own, true);
    }
    if entry.kind == Kind::Special {
        return passed_over(&path, false);
    }
    if path.split(|b| *b == b'/').count() > DEEPEST {
        let why = format!("it is more than {DEEPEST} directories deep and is left out");
        return refused(&why, &path);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::landing::tests::{directory, file, link, listed};
    use thalweg_wire::object::FilePath;

    fn names(listed: &[Listing], layout: Layout) -> Vec<String> {
        let items = NamedItems::assign_names(listed, layout).unwrap();
        items.things.keys().map(|k| String::from_utf8(k.clone()).unwrap()).collect()
    }

    #[test]
    fn names_are_the_same_as_with_rsync() {
        let entries = || vec![directory(""), directory("x"), file("x/a", 1)];
        let of = |root: &str| listed(0, "fra", &[root], entries());
        assert_eq!(names(&[of("/srv/data")], Layout::Flat), ["data", "data/x", "data/x/a"]);
        for content in ["/srv/data/", "/srv/data/.", "/"] {
            assert_eq!(names(&[of(content)], Layout::Flat), ["", "x", "x/a"], "{content}");
        }
        assert_eq!(names(&[of("/srv/data")], Layout::ByNode)[0], "fra/data");
        let pattern = listed(0, "fra", &["/srv/*/x"], vec![file("a/x", 1), file("b/x", 1)]);
        assert_eq!(names(&[pattern], Layout::Flat), ["a/x", "b/x"]);
        let one = listed(0, "fra", &["/srv/file"], vec![file("", 1)]);
        assert_eq!(names(&[one], Layout::Flat), ["file"]);
    }

    #[test]
    fn different_items_with_one_name_are_reported() {
        let of = |source, node, entries| listed(source, node, &["/data/"], entries);
        let both = [of(0, "a", vec![file("x", 1)]), of(1, "b", vec![file("x", 1)])];
        let met = NamedItems::assign_names(&both, Layout::Flat).unwrap_err();
        let said = crate::landing::OpenError::Collisions(met).to_string();
        assert!(said.contains("x would be both a:/data/x and b:/data/x"), "{said}");
        assert_eq!(names(&both, Layout::ByNode), ["a/x", "b/x"]);
        let below = [of(0, "a", vec![link("x", "y")]), of(1, "b", vec![file("x/a", 1)])];
        assert_eq!(
            NamedItems::assign_names(&below, Layout::Flat).unwrap_err().len(),
            1,
            "a file is no directory"
        );
        let merged = [of(0, "a", vec![directory("x")]), of(1, "b", vec![directory("x")])];
        assert_eq!(names(&merged, Layout::Flat), ["x"]);
    }

    #[test]
    fn an_item_listed_through_two_paths_appears_once() {
        let mut again = file("a", 3);
        (again.root, again.path) = (1, FilePath::new(Vec::new()).unwrap());
        let both = listed(0, "a", &["/d/*", "/d/a"], vec![file("a", 3), again]);
        assert_eq!(names(&[both], Layout::Flat), ["a"]);
    }

    #[test]
    fn too_deep_paths_are_reported_and_the_others_land() {
        let deep = |parts: usize| vec!["d"; parts].join("/");
        let entries = vec![file(&deep(DEEPEST), 1), file(&deep(2000), 1), file("a", 1)];
        let items =
            NamedItems::assign_names(&[listed(0, "x", &["/d/"], entries)], Layout::Flat).unwrap();
        assert_eq!(items.things.len(), 2);
        let [failed] = &items.failed[..] else { panic!("{:?}", items.failed) };
        assert_eq!(failed.path, to_path(deep(2000).as_bytes()));
        assert!(failed.why.contains("256 directories deep"), "{}", failed.why);
    }

    #[test]
    fn our_own_unfinished_files_and_specials_are_left_out() {
        let mut special = file("fifo", 0);
        special.kind = Kind::Special;
        let ours = [".thalweg-gather", ".a.thalweg-part", "d/.a.thalweg-journal"];
        let mut entries: Vec<_> = ours.iter().map(|name| file(name, 1)).collect();
        entries.extend([special, file("a.thalweg-part", 1)]);
        entries.extend([directory(".thalweg-cast-1"), file(".thalweg-cast-1/journal", 9)]);
        let items =
            NamedItems::assign_names(&[listed(0, "a", &["/d/"], entries)], Layout::Flat).unwrap();
        assert_eq!(items.failed, [], "nothing that is missed");
        let passed: Vec<_> =
            items.passed_over.iter().map(|p| (p.path.to_str(), p.is_ours)).collect();
        let expected = [
            (".a.thalweg-part", true),
            (".thalweg-cast-1", true),
            (".thalweg-gather", true),
            ("d/.a.thalweg-journal", true),
            ("fifo", false),
        ];
        assert_eq!(passed, expected.map(|(path, is)| (Some(path), is)));
        assert_eq!(items.things.len(), 1, "only ours begin with a dot");
    }
}
