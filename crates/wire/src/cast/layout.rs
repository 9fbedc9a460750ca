//! Which files an object's bytes are.

use crate::object::{Field, FilePath, FileTime, More, Owners, Xattr};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use thiserror::Error;

/// The longest encoded layout in bytes: half a million files with names of 100 bytes.
pub const MAX_LAYOUT: usize = 64 << 20;

/// The most entries of a layout: each costs its receivers memory, and a place on the disk.
pub const MAX_ENTRIES: usize = 1 << 20;

/// What an object's bytes are: one file, or those of a directory one behind the other.
///
/// An object that is one file has one entry with the empty path. Of a directory the first entry is
/// the directory itself, with the empty path; the rest are below it in the order of their paths.
///
/// Encoded as postcard of the plain entries; if any has more than that, then also of `fields` by the entries' indices,
/// and the owners' names. Nodes that know no fields refuse what has some, and take all else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// What there is.
    pub entries: Vec<LayoutEntry>,
    /// Names of the owners, if there are owners.
    pub owners: Owners,
}

/// A file, a directory or a symbolic link, with what is kept of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutEntry {
    /// Below the object's name.
    pub path: FilePath,
    /// What it is.
    pub kind: LayoutKind,
    /// Permissions, the lower 12 bits of `st_mode`.
    pub mode: u16,
    /// When its content last changed.
    pub modified: FileTime,
    /// What few have.
    pub more: Option<Box<LayoutMore>>,
}

/// What few entries have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayoutMore {
    /// The user's number, if it is kept.
    pub user: Option<u32>,
    /// The group's.
    pub group: Option<u32>,
    /// It is another name of the file of this entry, which comes before; then its own length is 0.
    pub same_as: Option<u32>,
    /// Extended attributes, and whether it is sparse.
    pub more: More,
}

/// [`LayoutMore::same_as`]; 32 was both numbers in one field, which no source wrote.
const SAME_AS: u8 = 33;
/// [`LayoutMore::user`].
const USER: u8 = 34;
/// [`LayoutMore::group`].
const GROUP: u8 = 35;

/// An entry as all nodes know it.
#[derive(Serialize, Deserialize)]
struct Plain {
    path: FilePath,
    kind: LayoutKind,
    mode: u16,
    modified_ns: i64,
}

/// What follows the plain entries: fields by the index of the entry, and [`Owners`]. Both are encoded, so that no more
/// than one entry's are in memory twice.
#[derive(Serialize, Deserialize)]
struct Rest {
    fields: Vec<(u32, Vec<u8>)>,
    owners: Vec<u8>,
}

/// The most bytes of owners' names: 30,000 of them.
const MAX_OWNERS: usize = 1 << 20;

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayoutKind {
    /// A file with so many bytes of the object, behind those of the files before it.
    File {
        /// How many.
        length: u64,
    },
    /// A directory.
    Directory,
    /// A symbolic link, copied as one.
    Symlink {
        /// Where it points; any bytes but NUL.
        target: Vec<u8>,
    },
}

/// The entries are none that a tree is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// Not readable, or there is more behind it.
    #[error("the layout is not readable")]
    Invalid,
    /// More than [`MAX_ENTRIES`].
    #[error("the layout has more than {MAX_ENTRIES} entries")]
    Many,
    /// The first entry is not the object itself.
    #[error("the layout does not begin with the object itself")]
    Root,
    /// A path comes before one that is less, or twice.
    #[error("the layout is not in the order of its paths")]
    Order,
    /// An entry is below something that is no directory of the layout.
    #[error("the layout has an entry below what is no directory in it")]
    Parent,
    /// The files' lengths do not add up to the object's.
    #[error("the layout's files do not add up to the object's length")]
    Length,
    /// A link that points nowhere.
    #[error("the layout has a link whose target holds a NUL byte, or is empty or too long")]
    Target,
    /// A field that no entry has, or of none.
    #[error("the layout has fields that no entry has")]
    Fields,
    /// A second name of what is no file before it.
    #[error("the layout has a hard link to what is no file before it")]
    SameAs,
}

impl Layout {
    /// Of these, without owners.
    pub fn new(entries: Vec<LayoutEntry>) -> Self {
        Self { entries, owners: Owners::default() }
    }

    /// Whether it has symbolic links that a receiver may leave out: absolute ones, and those that contain `..`.
    pub fn has_links_upwards(&self) -> bool {
        let leads_up = |target: &[u8]| {
            target.starts_with(b"/") || target.split(|b| *b == b'/').any(|part| part == b"..")
        };
        let is_one = |entry: &LayoutEntry| matches!(&entry.kind, LayoutKind::Symlink { target } if leads_up(target));
        self.entries.iter().any(is_one)
    }

    /// As it is sent and hashed.
    pub fn encode(&self) -> Vec<u8> {
        let plain: Vec<Plain> = self.entries.iter().map(Plain::of).collect();
        // Writing to a vector fails for no value of these types.
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

    /// Reads it, and checks that it is a tree with so many bytes.
    ///
    /// # Errors
    /// [`LayoutError`].
    pub fn decode(bytes: &[u8], length: u64) -> Result<Self, LayoutError> {
        few(bytes)?;
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
        few(rest)?;
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

    /// The entry of whose file this one is a name: itself, if it is the first.
    pub fn first_of<'a>(&'a self, entry: &'a LayoutEntry) -> &'a LayoutEntry {
        let first = entry.same_as().and_then(|first| self.entries.get(first as usize));
        first.unwrap_or(entry)
    }

    /// Whether the object is one file.
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
    fn of(entry: &LayoutEntry) -> Self {
        let LayoutEntry { path, kind, mode, modified, .. } = entry;
        let (path, kind) = (path.clone(), kind.clone());
        Self { path, kind, mode: *mode, modified_ns: modified.as_nanos() }
    }
}

impl From<Plain> for LayoutEntry {
    fn from(plain: Plain) -> Self {
        let Plain { path, kind, mode, modified_ns } = plain;
        Self { path, kind, mode, modified: FileTime::of_nanos(modified_ns), more: None }
    }
}

impl Layout {
    /// What an entry is another name of: a file before it that is none itself.
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
    /// The entry of which it is another name.
    pub fn same_as(&self) -> Option<u32> {
        self.more.as_ref()?.same_as
    }

    /// Numbers of user and group, as far as they are kept.
    pub fn owner(&self) -> (Option<u32>, Option<u32>) {
        self.more.as_ref().map_or((None, None), |more| (more.user, more.group))
    }

    /// Its extended attributes.
    pub fn xattrs(&self) -> &[Xattr] {
        self.more.as_ref().map_or(&[], |more| &more.more.xattrs)
    }

    /// Whether it has holes.
    pub fn is_sparse(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.more.holes.is_some())
    }

    fn fields(&self) -> Vec<Field> {
        let more = self.more.as_deref();
        let mut fields = Field::of(self.modified, more.map(|more| &more.more));
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
                if let Some(More { xattrs, holes, .. }) = more.map(|more| *more) {
                    let known = &mut self.more.get_or_insert_default().more;
                    known.holes = holes.or(known.holes.take());
                    known.xattrs.extend(xattrs);
                }
            }
        }
        Ok(())
    }

    /// Its bytes of the object.
    fn bytes(&self) -> Option<u64> {
        match self.kind {
            LayoutKind::File { length } => Some(length),
            _ => Some(0),
        }
    }
}

/// Whether a list has no more than [`MAX_ENTRIES`], before there are any in memory: the shortest take a tenth of what
/// they are there.
fn few(list: &[u8]) -> Result<(), LayoutError> {
    match postcard::take_from_bytes::<u64>(list) {
        Ok((entries, _)) if entries <= MAX_ENTRIES as u64 => Ok(()),
        Ok(_) => Err(LayoutError::Many),
        Err(_) => Err(LayoutError::Invalid),
    }
}

/// `PATH_MAX` of Linux, with its NUL.
fn check_target(target: &[u8]) -> Result<(), LayoutError> {
    let is_sound = !target.is_empty() && target.len() < 4096 && !target.contains(&0);
    if is_sound { Ok(()) } else { Err(LayoutError::Target) }
}
