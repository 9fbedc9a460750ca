//! The layout of an object: the files that its bytes consist of.

use crate::object::{ExtraMetadata, Field, FilePath, FileTime, Owners, Xattr};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thiserror::Error;

/// The longest encoded layout, bytes: half a million files with names of 100 bytes.
pub const MAX_LAYOUT: usize = 64 << 20;

/// The maximum number of entries of a layout. Each costs a receiver memory and an inode.
pub const MAX_ENTRIES: usize = 1 << 20;

/// The files of an object: a single file, or all files of a directory, concatenated.
///
/// The layout of a single file has one entry with the empty path. In that of a directory, the first entry is the
/// directory itself, with the empty path; the other entries are below it, in the order of their paths.
///
/// Encoded as postcard of the plain entries. If an entry has further fields or there are owners, `fields` by the
/// entries' indices and the owners' names follow. Nodes of versions that do not know fields refuse a layout with fields
/// and accept any other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    pub entries: Vec<LayoutEntry>,
    /// The names of the owners, if owners are kept.
    pub owners: Owners,
}

/// A file, a directory or a symbolic link with its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutEntry {
    /// The path below the object's name.
    pub path: FilePath,
    pub kind: LayoutKind,
    /// Permissions, the lower 12 bits of `st_mode`.
    pub mode: u16,
    /// When the content last changed.
    pub modified: FileTime,
    /// Metadata that few entries have.
    pub more: Option<Box<LayoutMetadata>>,
}

/// Metadata that few entries have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutMetadata {
    /// The owner's numeric id, if it is kept.
    pub user: Option<u32>,
    /// The group's numeric id, if it is kept.
    pub group: Option<u32>,
    /// The index of an earlier entry, of whose file this is another name (a hard link). The length of this entry is
    /// then 0.
    pub same_as: Option<u32>,
    /// Extended attributes and holes.
    pub more: ExtraMetadata,
}

/// The tag of [`LayoutMetadata::same_as`]. Tag 32 stood for user and group in one field, which no source ever wrote.
const SAME_AS: u8 = 33;
/// The tag of [`LayoutMetadata::user`].
const USER: u8 = 34;
/// The tag of [`LayoutMetadata::group`].
const GROUP: u8 = 35;

/// The part of an entry that nodes of all versions decode.
#[derive(Serialize, Deserialize)]
struct Plain {
    path: FilePath,
    kind: LayoutKind,
    mode: u16,
    modified_ns: i64,
}

/// The part after the plain entries: fields by the index of the entry, and [`Owners`]. Both are encoded once more, so
/// that at most one entry's fields are in memory twice.
#[derive(Serialize, Deserialize)]
struct Rest {
    fields: Vec<(u32, Vec<u8>)>,
    owners: Vec<u8>,
}

/// The longest encoding of the owners' names, bytes: some 30,000 names.
const MAX_OWNERS: usize = 1 << 20;

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayoutKind {
    /// A file. Its bytes follow those of the files before it in the object.
    File {
        /// The length in bytes.
        length: u64,
    },
    Directory,
    /// A symbolic link, which is copied as a link.
    Symlink {
        /// The target; any bytes except NUL.
        target: Vec<u8>,
    },
}

/// Why a layout is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// It cannot be decoded, or bytes follow it.
    #[error("the layout is not readable")]
    Invalid,
    /// It has more than [`MAX_ENTRIES`] entries.
    #[error("the layout has more than {MAX_ENTRIES} entries")]
    Many,
    /// The first entry is not the object itself.
    #[error("the layout does not begin with the object itself")]
    Root,
    /// The paths are not in ascending order, or a path occurs twice.
    #[error("the entries of the layout are not sorted by path")]
    Order,
    /// An entry is below a path that is not a directory of the layout.
    #[error("the layout has an entry below one that is not a directory")]
    Parent,
    /// The lengths of the files do not add up to the object's length.
    #[error("the layout's files do not add up to the object's length")]
    Length,
    /// A link's target contains a NUL byte, is empty, or is too long.
    #[error("the layout has a link whose target holds a NUL byte, or is empty or too long")]
    Target,
    /// A field is invalid, or belongs to no entry.
    #[error("the layout has an entry with invalid fields")]
    Fields,
    /// A hard link refers to something other than an earlier file.
    #[error("the layout has a hard link that does not point to an earlier file")]
    SameAs,
}

impl Layout {
    /// Creates a layout of these entries, without owners.
    pub fn new(entries: Vec<LayoutEntry>) -> Self {
        Self { entries, owners: Owners::default() }
    }

    /// Whether it has symbolic links that a receiver may leave out, which are absolute or contain `..`.
    pub fn has_links_upwards(&self) -> bool {
        let leads_up = |target: &[u8]| {
            target.starts_with(b"/") || target.split(|b| *b == b'/').any(|part| part == b"..")
        };
        let is_one = |entry: &LayoutEntry| matches!(&entry.kind, LayoutKind::Symlink { target } if leads_up(target));
        self.entries.iter().any(is_one)
    }

    /// Encodes the layout as it is sent and hashed.
    pub fn encode(&self) -> Vec<u8> {
        let plain: Vec<Plain> = self.entries.iter().map(Plain::from_entry).collect();
        // Encoding these types to a vector cannot fail.
        let mut bytes = postcard::to_stdvec(&plain).unwrap_or_default();
        let fields = (0..).zip(&self.entries).map(|(number, entry)| (number, entry.fields()));
        let fields = fields.filter(|(_, fields)| !fields.is_empty());
        let fields: Vec<_> = fields.map(|(n, f)| (n, Field::encode(&f))).collect();
        if !fields.is_empty() || self.owners != Owners::default() {
            let owners = postcard::to_stdvec(&self.owners).unwrap_or_default();
            bytes.extend(postcard::to_stdvec(&Rest { fields, owners }).unwrap_or_default());
        }
        bytes
    }

    /// Decodes a layout and checks that it is a tree whose files have `length` bytes in total.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn decode(bytes: &[u8], length: u64) -> Result<Self, LayoutError> {
        check_count(bytes)?;
        let read = postcard::take_from_bytes::<Vec<Plain>>(bytes);
        let (plain, rest) = read.map_err(|_| LayoutError::Invalid)?;
        let mut layout = Self::new(plain.into_iter().map(LayoutEntry::from).collect());
        if !rest.is_empty() {
            layout.add(rest)?;
        }
        layout.check(length)?;
        Ok(layout)
    }

    fn add(&mut self, rest: &[u8]) -> Result<(), LayoutError> {
        check_count(rest)?;
        let Ok((Rest { fields, owners }, [])) = postcard::take_from_bytes(rest) else {
            return Err(LayoutError::Invalid);
        };
        if owners.len() > MAX_OWNERS {
            return Err(LayoutError::Fields);
        }
        self.owners = postcard::from_bytes(&owners).map_err(|_| LayoutError::Invalid)?;
        for (number, fields) in fields {
            let entry = self.entries.get_mut(number as usize).ok_or(LayoutError::Fields)?;
            let fields = Field::decode(&fields).map_err(|_| LayoutError::Fields)?;
            fields.iter().try_for_each(|field| entry.put(field))?;
        }
        Ok(())
    }

    /// The entry of whose file `entry` is a hard link; otherwise `entry` itself.
    pub fn first_of<'a>(&'a self, entry: &'a LayoutEntry) -> &'a LayoutEntry {
        let first = entry.same_as().and_then(|first| self.entries.get(first as usize));
        first.unwrap_or(entry)
    }

    /// Whether the object is a single file.
    pub fn is_file(&self) -> bool {
        matches!(self.entries.first(), Some(LayoutEntry { kind: LayoutKind::File { .. }, .. }))
    }

    fn check(&self, length: u64) -> Result<(), LayoutError> {
        let (first, rest) = self.entries.split_first().ok_or(LayoutError::Root)?;
        let is_link = matches!(first.kind, LayoutKind::Symlink { .. });
        if !first.path.as_bytes().is_empty() || is_link || (self.is_file() && !rest.is_empty()) {
            return Err(LayoutError::Root);
        }
        let mut directories = BTreeSet::from([&b""[..]]);
        let (mut last, mut sum) = (&b""[..], first.bytes());
        for (number, entry) in (1..).zip(rest) {
            self.check_same(number, entry)?;
            let path = entry.path.as_bytes();
            if path <= last {
                return Err(LayoutError::Order);
            }
            let above = path.iter().rposition(|b| *b == b'/').map_or(&b""[..], |at| &path[..at]);
            if !directories.contains(above) {
                return Err(LayoutError::Parent);
            }
            match &entry.kind {
                LayoutKind::Directory => _ = directories.insert(path),
                LayoutKind::Symlink { target } => check_target(target)?,
                LayoutKind::File { .. } => {}
            }
            last = path;
            sum = sum.and_then(|sum: u64| sum.checked_add(entry.bytes()?));
        }
        if sum == Some(length) { Ok(()) } else { Err(LayoutError::Length) }
    }
}

impl Plain {
    fn from_entry(entry: &LayoutEntry) -> Self {
        let LayoutEntry { path, kind, mode, modified, .. } = entry;
        let (path, kind) = (path.clone(), kind.clone());
        Self { path, kind, mode: *mode, modified_ns: modified.as_nanos() }
    }
}

impl From<Plain> for LayoutEntry {
    fn from(plain: Plain) -> Self {
        let Plain { path, kind, mode, modified_ns } = plain;
        Self { path, kind, mode, modified: FileTime::from_nanos(modified_ns), more: None }
    }
}

impl Layout {
    /// Checks that a hard link has length 0 and refers to an earlier file that is not a hard link itself.
    fn check_same(&self, number: u32, entry: &LayoutEntry) -> Result<(), LayoutError> {
        let Some(first) = entry.same_as() else { return Ok(()) };
        let first = Some(first).filter(|first| *first < number);
        let first = first.and_then(|first| self.entries.get(first as usize));
        let is_file = |entry: &LayoutEntry| matches!(entry.kind, LayoutKind::File { .. });
        let is_sound = first.is_some_and(|first| is_file(first) && first.same_as().is_none())
            && entry.kind == LayoutKind::File { length: 0 };
        if is_sound { Ok(()) } else { Err(LayoutError::SameAs) }
    }
}

impl LayoutEntry {
    /// The index of the entry of whose file this is a hard link.
    pub fn same_as(&self) -> Option<u32> {
        self.more.as_ref()?.same_as
    }

    /// The numeric ids of user and group, as far as they are kept.
    pub fn owner(&self) -> (Option<u32>, Option<u32>) {
        self.more.as_ref().map_or((None, None), |more| (more.user, more.group))
    }

    /// The extended attributes.
    pub fn xattrs(&self) -> &[Xattr] {
        self.more.as_ref().map_or(&[], |more| &more.more.xattrs)
    }

    /// Whether the file is sparse.
    pub fn is_sparse(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.more.holes.is_some())
    }

    fn fields(&self) -> Vec<Field> {
        let more = self.more.as_deref();
        let mut fields = Field::for_metadata(self.modified, more.map(|more| &more.more));
        let (user, group) = self.owner();
        fields.extend(user.map(|user| Field::new(USER, &user)));
        fields.extend(group.map(|group| Field::new(GROUP, &group)));
        fields.extend(self.same_as().map(|first| Field::new(SAME_AS, &first)));
        fields
    }

    fn put(&mut self, field: &Field) -> Result<(), LayoutError> {
        let wrong = |_| LayoutError::Fields;
        match field.tag {
            USER => self.more.get_or_insert_default().user = Some(field.read().map_err(wrong)?),
            GROUP => self.more.get_or_insert_default().group = Some(field.read().map_err(wrong)?),
            SAME_AS => {
                self.more.get_or_insert_default().same_as = Some(field.read().map_err(wrong)?);
            }
            _ => {
                let (size, mut more) = (self.bytes(), None);
                field.apply(size, &mut self.modified, &mut more).map_err(wrong)?;
                if let Some(ExtraMetadata { xattrs, holes, .. }) = more.map(|more| *more) {
                    let known = &mut self.more.get_or_insert_default().more;
                    known.holes = holes.or(known.holes.take());
                    known.xattrs.extend(xattrs);
                }
            }
        }
        Ok(())
    }

    /// The number of the object's bytes in this entry.
    fn bytes(&self) -> Option<u64> {
        match self.kind {
            LayoutKind::File { length } => Some(length),
            _ => Some(0),
        }
    }
}

/// Checks that a list has at most [`MAX_ENTRIES`] entries before they are decoded: the shortest encoding of an entry
/// takes a tenth of its memory.
fn check_count(list: &[u8]) -> Result<(), LayoutError> {
    match postcard::take_from_bytes::<u64>(list) {
        Ok((entries, _)) if entries <= MAX_ENTRIES as u64 => Ok(()),
        Ok(_) => Err(LayoutError::Many),
        Err(_) => Err(LayoutError::Invalid),
    }
}

/// The bound is Linux's `PATH_MAX`, which includes the final NUL.
fn check_target(target: &[u8]) -> Result<(), LayoutError> {
    let is_sound = !target.is_empty() && target.len() < 4096 && !target.contains(&0);
    if is_sound { Ok(()) } else { Err(LayoutError::Target) }
}
