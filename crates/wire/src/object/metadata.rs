//! Optional metadata of entries, encoded as tagged fields; nodes ignore fields that they do not know.

use super::{Entry, FileTime, Kind};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

/// The maximum size of an entry's extended attributes, names and values together, bytes. ext4 and NFS store less; on
/// other file systems a single value may be as large (xattr(7)).
pub const MAX_XATTRS: usize = 64 << 10;

/// The longest name of an extended attribute, bytes (xattr(7)).
const MAX_XATTR_NAME: usize = 255;

/// The maximum number of holes of a file in a message, 16 KiB; of more, only the largest are sent. The rest is sent as
/// data, and is made sparse nevertheless where it is zero.
pub const MAX_HOLES: usize = 1024;

/// The maximum number of fields of an entry. Four are defined here and three in layouts of casts.
const MAX_FIELDS: usize = 16;

/// An extended attribute; an access control list is one whose name begins with `system.posix_acl_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Xattr {
    /// The name with its namespace, such as `user.origin`; without NUL bytes.
    pub name: Vec<u8>,
    /// The value; any bytes.
    pub value: Vec<u8>,
}

/// Metadata that few files have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraMetadata {
    /// The requested extended attributes and access control lists, by name.
    pub xattrs: Vec<Xattr>,
    /// The largest holes as half-open ranges, ascending; `None`: the file is not sparse.
    pub holes: Option<Vec<(u64, u64)>>,
    /// The serving node has no permission to read the file. Only set if [`Keep::READABLE`](super::Keep::READABLE) was
    /// requested.
    pub is_unreadable: bool,
}

/// The names of the users and groups whose ids are in entries. A receiver that knows a name under another id uses its
/// own id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owners {
    /// Ids and names of users.
    pub users: Vec<(u32, Vec<u8>)>,
    /// Ids and names of groups.
    pub groups: Vec<(u32, Vec<u8>)>,
}

/// A field of an entry. `body` is postcard; nodes that do not know the tag ignore the field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Field {
    pub tag: u8,
    pub body: Vec<u8>,
}

/// The tag of a time that does not fit in 64 bits of nanoseconds: `i64` s, `u32` ns.
pub(crate) const TIME: u8 = 1;
/// The tag of [`ExtraMetadata::xattrs`].
pub(crate) const XATTRS: u8 = 2;
/// The tag of [`ExtraMetadata::holes`].
pub(crate) const HOLES: u8 = 3;
/// The tag of [`ExtraMetadata::is_unreadable`]; the body is empty.
pub(crate) const UNREADABLE: u8 = 4;

/// Why a field is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// There are more fields than an entry may have.
    #[error("an entry has more than {MAX_FIELDS} fields")]
    Fields,
    /// A field cannot be decoded.
    #[error("a field of an entry is not readable")]
    Unreadable,
    /// The attributes have invalid names or are too long.
    #[error("an entry's extended attributes are not valid")]
    Xattrs,
    /// Holes are empty, overlap, are not in order, or lie beyond the end of the file; or there are too many.
    #[error("a file's holes are not valid")]
    Holes,
}

impl Xattr {
    /// Whether the attributes are valid for one file.
    pub fn are_sound(all: &[Self]) -> bool {
        let is_sound = |xattr: &Self| {
            !xattr.name.is_empty() && xattr.name.len() <= MAX_XATTR_NAME && !xattr.name.contains(&0)
        };
        let bytes: usize = all.iter().map(Self::bytes).sum();
        bytes <= MAX_XATTRS && all.iter().all(is_sound)
    }

    /// The length of name and value, plus one, so that the number of empty attributes is bounded, too.
    pub fn bytes(&self) -> usize {
        self.name.len() + self.value.len() + 1
    }
}

impl ExtraMetadata {
    /// The bytes of memory in addition to the entry.
    pub fn memory(&self) -> usize {
        let xattrs: usize = self.xattrs.iter().map(|x| size_of::<Xattr>() + x.bytes()).sum();
        size_of::<Self>() + xattrs + self.holes.as_ref().map_or(0, |holes| 16 * holes.len())
    }
}

/// Whether the holes are valid for a file of this size.
pub(crate) fn are_holes(holes: &[(u64, u64)], size: u64) -> bool {
    let mut end = 0;
    holes.len() <= MAX_HOLES
        && holes.iter().all(|(from, to)| {
            let is_sound = *from >= end && from < to && *to <= size;
            end = *to;
            is_sound
        })
}

impl Field {
    pub fn new(tag: u8, value: &impl Serialize) -> Self {
        // Encoding these types to a vector cannot fail.
        Self { tag, body: postcard::to_stdvec(value).unwrap_or_default() }
    }

    /// Decodes the body; fails if it is invalid or has bytes left over.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, MetadataError> {
        match postcard::take_from_bytes(&self.body) {
            Ok((value, [])) => Ok(value),
            _ => Err(MetadataError::Unreadable),
        }
    }

    /// The fields of a time and of optional metadata.
    pub fn for_metadata(time: FileTime, more: Option<&ExtraMetadata>) -> Vec<Self> {
        let time = time.is_beyond().then(|| Self::new(TIME, &time));
        let xattrs = more.filter(|more| !more.xattrs.is_empty());
        let xattrs = xattrs.map(|more| Self::new(XATTRS, &more.xattrs));
        let holes = more.and_then(|more| more.holes.as_ref());
        let holes = holes.map(|holes| Self::new(HOLES, holes));
        let unreadable = more.filter(|more| more.is_unreadable);
        let unreadable = unreadable.map(|_| Self { tag: UNREADABLE, body: Vec::new() });
        time.into_iter().chain(xattrs).chain(holes).chain(unreadable).collect()
    }

    /// Checks the number of fields.
    fn check_count(number: usize) -> Result<(), MetadataError> {
        if number <= MAX_FIELDS { Ok(()) } else { Err(MetadataError::Fields) }
    }

    /// Encodes the fields of one entry.
    pub fn encode(all: &[Self]) -> Vec<u8> {
        // Encoding these types to a vector cannot fail.
        postcard::to_stdvec(all).unwrap_or_default()
    }

    /// Decodes the fields of one entry. Their number is checked before they are in memory.
    pub fn decode(bytes: &[u8]) -> Result<Vec<Self>, MetadataError> {
        let (number, _) =
            postcard::take_from_bytes(bytes).map_err(|_| MetadataError::Unreadable)?;
        Self::check_count(number)?;
        match postcard::take_from_bytes(bytes) {
            Ok((fields, [])) => Ok(fields),
            _ => Err(MetadataError::Unreadable),
        }
    }

    /// Decodes a field of [`Self::of`] into `time` or `more`; ignores other fields.
    pub fn apply(
        &self,
        size: Option<u64>,
        time: &mut FileTime,
        more: &mut Option<Box<ExtraMetadata>>,
    ) -> Result<(), MetadataError> {
        match self.tag {
            TIME => *time = self.read()?,
            XATTRS => {
                let xattrs: Vec<Xattr> = self.read()?;
                if !Xattr::are_sound(&xattrs) {
                    return Err(MetadataError::Xattrs);
                }
                more.get_or_insert_default().xattrs = xattrs;
            }
            HOLES => {
                let holes: Vec<(u64, u64)> = self.read()?;
                if !size.is_some_and(|size| are_holes(&holes, size)) {
                    return Err(MetadataError::Holes);
                }
                more.get_or_insert_default().holes = Some(holes);
            }
            UNREADABLE => more.get_or_insert_default().is_unreadable = true,
            _ => {}
        }
        Ok(())
    }
}

/// An entry with all metadata. An [`Entry`] alone is encoded for nodes of all versions: without [`Entry::more`], and
/// with its time clamped to 64 bits of nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fielded", into = "Fielded")]
pub struct DescribedEntry(pub Entry);

/// `entry ‖ fields`.
#[derive(Clone, Serialize, Deserialize)]
struct Fielded {
    entry: Entry,
    fields: Vec<Field>,
}

impl From<DescribedEntry> for Fielded {
    fn from(DescribedEntry(entry): DescribedEntry) -> Self {
        let fields = Field::for_metadata(entry.modified, entry.more.as_deref());
        Self { entry, fields }
    }
}

impl TryFrom<Fielded> for DescribedEntry {
    type Error = MetadataError;

    fn try_from(Fielded { mut entry, fields }: Fielded) -> Result<Self, MetadataError> {
        Field::check_count(fields.len())?;
        let size = match &entry.kind {
            Kind::File { snapshot } => Some(snapshot.size),
            _ => None,
        };
        for field in fields {
            field.apply(size, &mut entry.modified, &mut entry.more)?;
        }
        Ok(Self(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{FilePath, Snapshot, decode, encode};

    fn entry(more: Option<ExtraMetadata>) -> Entry {
        let snapshot = Snapshot { device: 1, inode: 2, size: 100, modified_ns: 3, changed_ns: 4 };
        Entry {
            root: 0,
            path: FilePath::new(b"a".to_vec()).unwrap(),
            kind: Kind::File { snapshot },
            mode: 0o640,
            owner: 1,
            group: 2,
            modified: FileTime::new(15_032_385_535, 9).unwrap(),
            more: more.map(Box::new),
        }
    }

    fn decode_again(
        described: &DescribedEntry,
    ) -> Result<DescribedEntry, crate::object::MessageError> {
        decode(&encode(described)[4..])
    }

    #[test]
    fn described_entries_round_trip_and_plain_ones_keep_the_old_encoding() {
        let xattrs = vec![Xattr { name: b"user.a".to_vec(), value: vec![0, 255] }];
        let all = entry(Some(ExtraMetadata {
            xattrs,
            holes: Some(vec![(0, 10), (20, 100)]),
            is_unreadable: true,
        }));
        assert_eq!(decode_again(&DescribedEntry(all.clone())), Ok(DescribedEntry(all.clone())));
        let plain: Entry = decode(&encode(&all)[4..]).unwrap();
        assert_eq!((plain.modified.as_nanos(), plain.more), (i64::MAX, None));
        // The encoding of versions without fields: root, path, kind, mode, owner, group, ns.
        type Old = (u32, FilePath, Kind, u16, u32, u32, i64);
        let old: Old = decode(&encode(&all)[4..]).unwrap();
        assert_eq!((old.1, old.3, old.6), (all.path, 0o640, i64::MAX));
    }

    #[test]
    fn invalid_fields_are_refused_and_unknown_ones_ignored() {
        let with = |fields: Vec<Field>| {
            decode::<DescribedEntry>(&encode(&Fielded { entry: entry(None), fields })[4..])
        };
        let x = |name: &[u8], value: usize| Xattr { name: name.to_vec(), value: vec![0; value] };
        for bad in [
            Field::new(HOLES, &vec![(0_u64, 101_u64)]),
            Field::new(HOLES, &vec![(5_u64, 5_u64)]),
            Field::new(HOLES, &vec![(0_u64, 9_u64), (8, 10)]),
            Field::new(HOLES, &(0..2000).map(|n| (2 * n, 2 * n + 1)).collect::<Vec<(u64, u64)>>()),
            Field::new(XATTRS, &vec![x(b"", 1)]),
            Field::new(XATTRS, &vec![x(b"a\0b", 1)]),
            Field::new(XATTRS, &vec![x(b"user.a", MAX_XATTRS)]),
            Field::new(XATTRS, &vec![x(b"a", 0); MAX_XATTRS]),
            Field::new(TIME, &(5_i64, 1_000_000_000_u32)),
            Field { tag: TIME, body: vec![0x80] },
        ] {
            assert!(with(vec![bad.clone()]).is_err(), "{bad:?}");
        }
        let unknown = Field { tag: 200, body: vec![1, 2, 3] };
        assert!(with(vec![unknown.clone()]).is_ok());
        assert!(with(vec![unknown; MAX_FIELDS + 1]).is_err());
    }
}
