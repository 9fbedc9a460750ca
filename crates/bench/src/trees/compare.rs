//! Compares two trees and classifies their differences. Pure.

use super::snapshot::{SnapshotEntry, SnapshotKind, TreeSnapshot};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The number of bytes that a copy of a sparse file may occupy beyond the original and still count as sparse: metadata
/// blocks of the file system, and ends of holes that fall into its larger blocks.
const OCCUPIED_SLACK: u64 = 64 * 1024;

/// The class of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceClass {
    /// An entry that only the first tree has.
    Missing,
    /// A pipe, a socket or a device that only the first tree has.
    MissingSpecial,
    /// An entry that only the second tree has.
    Extra,
    /// Entries of different kinds.
    Type,
    /// Length or bytes of a file.
    Content,
    /// The text of a symbolic link.
    Link,
    /// The number of a device.
    Device,
    /// Permissions.
    Mode,
    /// Only the set-user-ID, set-group-ID or sticky bit.
    SetId,
    /// The user.
    Owner,
    Group,
    /// The modification time of a file.
    Time,
    /// The modification time of a directory.
    DirectoryTime,
    /// The modification time of a symbolic link.
    LinkTime,
    /// The modification time of a special file.
    SpecialTime,
    /// An extended attribute.
    Xattr,
    /// The access ACL.
    Acl,
    /// The default ACL of a directory.
    DefaultAcl,
    /// The names that refer to one file.
    HardLinks,
    /// Holes of the first that the second has filled.
    Holes,
}

impl DifferenceClass {
    /// The name of the class in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::MissingSpecial => "missing-special",
            Self::Extra => "extra",
            Self::Type => "type",
            Self::Content => "content",
            Self::Link => "link",
            Self::Device => "device",
            Self::Mode => "mode",
            Self::SetId => "set-id",
            Self::Owner => "owner",
            Self::Group => "group",
            Self::Time => "time",
            Self::DirectoryTime => "directory-time",
            Self::LinkTime => "link-time",
            Self::SpecialTime => "special-time",
            Self::Xattr => "xattr",
            Self::Acl => "acl",
            Self::DefaultAcl => "default-acl",
            Self::HardLinks => "hard-links",
            Self::Holes => "holes",
        }
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The path relative to the root, whose path is empty.
    pub path: Vec<u8>,
    pub class: DifferenceClass,
    /// The value of the first tree and that of the second.
    pub values: [String; 2],
}

impl Difference {
    /// The difference as a JSON object; bytes of the path that are not text are escaped.
    pub fn json(&self) -> Value {
        let [first, second] = &self.values;
        let path = self.path.escape_ascii().to_string();
        json!({ "path": path, "class": self.class.name(), "first": first, "second": second })
    }
}

/// The number of differences of each class.
pub fn by_class(all: &[Difference]) -> BTreeMap<DifferenceClass, usize> {
    let mut counts = BTreeMap::new();
    all.iter().for_each(|difference| *counts.entry(difference.class).or_default() += 1);
    counts
}

/// All differences between two trees.
pub fn compare(first: &TreeSnapshot, second: &TreeSnapshot) -> Vec<Difference> {
    let paths: BTreeSet<&Vec<u8>> = first.keys().chain(second.keys()).collect();
    let mut found = Differences::default();
    for path in paths {
        match (first.get(path), second.get(path)) {
            (Some(one), Some(other)) => found.compare_entries(path, one, other),
            (Some(one), None) if one.kind.is_special() => {
                found.add(path, DifferenceClass::MissingSpecial, [one.kind.name(), ""]);
            }
            (Some(one), None) => found.add(path, DifferenceClass::Missing, [one.kind.name(), ""]),
            (None, Some(other)) => found.add(path, DifferenceClass::Extra, ["", other.kind.name()]),
            (None, None) => {}
        }
    }
    found.compare_hard_links(first, second);
    found.0
}

#[derive(Default)]
struct Differences(Vec<Difference>);

impl Differences {
    fn add(&mut self, path: &[u8], class: DifferenceClass, values: [impl Into<String>; 2]) {
        let values = values.map(Into::into);
        self.0.push(Difference { path: path.to_vec(), class, values });
    }

    fn add_unless_equal<T: PartialEq + ToText>(
        &mut self,
        path: &[u8],
        class: DifferenceClass,
        pair: [T; 2],
    ) {
        if pair[0] != pair[1] {
            self.add(path, class, pair.map(|value| value.text()));
        }
    }

    fn compare_entries(&mut self, path: &[u8], one: &SnapshotEntry, other: &SnapshotEntry) {
        if one.kind.name() != other.kind.name() {
            return self.add(path, DifferenceClass::Type, [one.kind.name(), other.kind.name()]);
        }
        self.compare_content(path, &one.kind, &other.kind);
        self.add_unless_equal(path, DifferenceClass::Owner, [one.owner, other.owner]);
        self.add_unless_equal(path, DifferenceClass::Group, [one.group, other.group]);
        let is_link = matches!(one.kind, SnapshotKind::Link(_));
        let special = |entry: &SnapshotEntry| Octal(entry.mode & 0o7000);
        let usual = |entry: &SnapshotEntry| Octal(entry.mode & 0o777);
        if !is_link {
            self.add_unless_equal(path, DifferenceClass::Mode, [usual(one), usual(other)]);
            self.add_unless_equal(path, DifferenceClass::SetId, [special(one), special(other)]);
        }
        let time = match &one.kind {
            SnapshotKind::Directory => DifferenceClass::DirectoryTime,
            SnapshotKind::Link(_) => DifferenceClass::LinkTime,
            kind if kind.is_special() => DifferenceClass::SpecialTime,
            _ => DifferenceClass::Time,
        };
        self.add_unless_equal(path, time, [one.modified, other.modified]);
        self.compare_xattrs(path, one, other);
    }

    fn compare_content(&mut self, path: &[u8], one: &SnapshotKind, other: &SnapshotKind) {
        match (one, other) {
            (
                SnapshotKind::File { length, digest, occupied, .. },
                SnapshotKind::File { length: l, digest: d, occupied: o, holes },
            ) => {
                if (length, digest) != (l, d) {
                    let text = |length: &u64| format!("{length} B");
                    self.add(path, DifferenceClass::Content, [text(length), text(l)]);
                } else if *o > occupied + OCCUPIED_SLACK {
                    let text = |n: u64| format!("{n} B on the disk");
                    let second = format!("{}, {holes} B in holes", text(*o));
                    self.add(path, DifferenceClass::Holes, [text(*occupied), second]);
                }
            }
            (SnapshotKind::Link(one), SnapshotKind::Link(other)) if one != other => {
                let text = |target: &[u8]| target.escape_ascii().to_string();
                self.add(path, DifferenceClass::Link, [text(one), text(other)]);
            }
            (SnapshotKind::Device(one), SnapshotKind::Device(other)) => {
                self.add_unless_equal(path, DifferenceClass::Device, [*one, *other]);
            }
            _ => {}
        }
    }

    fn compare_xattrs(&mut self, path: &[u8], one: &SnapshotEntry, other: &SnapshotEntry) {
        let names: BTreeSet<_> = one.xattrs.keys().chain(other.xattrs.keys()).collect();
        for name in names {
            let class = match name.as_slice() {
                b"system.posix_acl_access" => DifferenceClass::Acl,
                b"system.posix_acl_default" => DifferenceClass::DefaultAcl,
                _ => DifferenceClass::Xattr,
            };
            let (one, other) = (one.xattrs.get(name), other.xattrs.get(name));
            if one != other {
                let text = |value: Option<&Vec<u8>>| match value {
                    Some(value) => format!("{}={}", name.escape_ascii(), value.escape_ascii()),
                    None => String::new(),
                };
                self.add(path, class, [text(one), text(other)]);
            }
        }
    }

    /// Compares which names refer to one file, among paths that both trees have.
    fn compare_hard_links(&mut self, first: &TreeSnapshot, second: &TreeSnapshot) {
        let text = |same: &Option<Vec<u8>>| {
            same.as_ref().map_or_else(String::new, |path| path.escape_ascii().to_string())
        };
        for (path, one) in first {
            let Some(other) = second.get(path) else { continue };
            if one.kind.name() == other.kind.name() && one.same_as != other.same_as {
                self.add(
                    path,
                    DifferenceClass::HardLinks,
                    [text(&one.same_as), text(&other.same_as)],
                );
            }
        }
    }
}

/// A value that can be shown in a report.
trait ToText {
    fn text(&self) -> String;
}

impl ToText for u32 {
    fn text(&self) -> String {
        self.to_string()
    }
}

impl ToText for u64 {
    fn text(&self) -> String {
        self.to_string()
    }
}

impl ToText for (i64, i64) {
    fn text(&self) -> String {
        format!("{}.{:09}", self.0, self.1)
    }
}

/// Bits of a mode, shown in octal.
#[derive(PartialEq)]
struct Octal(u32);

impl ToText for Octal {
    fn text(&self) -> String {
        format!("{:04o}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: SnapshotKind) -> SnapshotEntry {
        let xattrs = BTreeMap::from([
            (b"user.a".to_vec(), b"1".to_vec()),
            (b"system.posix_acl_access".to_vec(), b"2".to_vec()),
            (b"system.posix_acl_default".to_vec(), b"3".to_vec()),
        ]);
        SnapshotEntry {
            kind,
            mode: 0o2750,
            owner: 1,
            group: 2,
            modified: (3, 4),
            xattrs,
            same_as: None,
        }
    }

    fn file() -> SnapshotKind {
        SnapshotKind::File { length: 9, digest: vec![1], occupied: 0, holes: 9 }
    }

    fn one(kind: SnapshotKind) -> TreeSnapshot {
        TreeSnapshot::from([(b"x".to_vec(), entry(kind))])
    }

    /// The classes in which a tree with this entry differs from a tree with the changed entry.
    fn classes(
        kind: SnapshotKind,
        change: impl FnOnce(&mut SnapshotEntry),
    ) -> Vec<DifferenceClass> {
        let (first, mut second) = (one(kind.clone()), one(kind));
        second.values_mut().for_each(|_| {});
        change(second.get_mut(&b"x".to_vec()[..]).unwrap());
        compare(&first, &second).into_iter().map(|difference| difference.class).collect()
    }

    #[test]
    fn equal_trees_do_not_differ() {
        for kind in [
            file(),
            SnapshotKind::Directory,
            SnapshotKind::Link(vec![1]),
            SnapshotKind::Fifo,
            SnapshotKind::Device(1),
        ] {
            assert_eq!(classes(kind, |_| {}), []);
        }
    }

    #[test]
    fn each_change_is_found_as_its_class_alone() {
        assert_eq!(classes(file(), |e| e.mode = 0o2751), [DifferenceClass::Mode]);
        assert_eq!(classes(file(), |e| e.mode = 0o0750), [DifferenceClass::SetId]);
        assert_eq!(classes(file(), |e| e.owner = 9), [DifferenceClass::Owner]);
        assert_eq!(classes(file(), |e| e.group = 9), [DifferenceClass::Group]);
        assert_eq!(classes(file(), |e| e.modified.1 = 5), [DifferenceClass::Time]);
        assert_eq!(
            classes(SnapshotKind::Directory, |e| e.modified.1 = 5),
            [DifferenceClass::DirectoryTime]
        );
        assert_eq!(
            classes(SnapshotKind::Link(vec![]), |e| e.modified.0 = 5),
            [DifferenceClass::LinkTime]
        );
        assert_eq!(
            classes(SnapshotKind::Fifo, |e| e.modified.0 = 5),
            [DifferenceClass::SpecialTime]
        );
        assert_eq!(
            classes(SnapshotKind::Link(vec![1]), |e| e.kind = SnapshotKind::Link(vec![2])),
            [DifferenceClass::Link]
        );
        assert_eq!(
            classes(SnapshotKind::Device(1), |e| e.kind = SnapshotKind::Device(2)),
            [DifferenceClass::Device]
        );
        assert_eq!(classes(file(), |e| e.kind = SnapshotKind::Fifo), [DifferenceClass::Type]);
        assert_eq!(classes(file(), |e| e.same_as = Some(vec![1])), [DifferenceClass::HardLinks]);
        for (name, class) in [
            ("user.a", DifferenceClass::Xattr),
            ("system.posix_acl_access", DifferenceClass::Acl),
            ("system.posix_acl_default", DifferenceClass::DefaultAcl),
        ] {
            assert_eq!(classes(file(), |e| drop(e.xattrs.remove(name.as_bytes()))), [class]);
        }
        let changed =
            |digest, occupied| SnapshotKind::File { length: 9, digest, occupied, holes: 0 };
        assert_eq!(classes(file(), |e| e.kind = changed(vec![2], 0)), [DifferenceClass::Content]);
        assert_eq!(
            classes(file(), |e| e.kind = changed(vec![1], 1 << 20)),
            [DifferenceClass::Holes]
        );
        assert_eq!(classes(file(), |e| e.kind = changed(vec![1], 4096)), []);
    }

    #[test]
    fn entries_that_only_one_tree_has_are_found() {
        let class = |first: &TreeSnapshot, second: &TreeSnapshot| compare(first, second)[0].class;
        let none = TreeSnapshot::new();
        assert_eq!(class(&one(file()), &none), DifferenceClass::Missing);
        assert_eq!(class(&one(SnapshotKind::Socket), &none), DifferenceClass::MissingSpecial);
        assert_eq!(class(&none, &one(file())), DifferenceClass::Extra);
    }
}
