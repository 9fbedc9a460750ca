//! Access control lists in the kernel's format (linux/posix_acl_xattr.h, version 2): a version, then for each entry a
//! tag, permissions and an id. All integers are little-endian.

use crate::names::IdMap;

const VERSION: [u8; 4] = [2, 0, 0, 0];

/// The size of an entry, in bytes.
const ENTRY_LEN: usize = 8;

/// Tags of entries that name a user or a group by id (linux/posix_acl.h).
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;

/// The user or group that an entry names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclSubject {
    /// A user id.
    User(u32),
    /// A group id.
    Group(u32),
}

/// Parses a list into tags, permissions and ids. `None` if it is not a list of this version.
fn parse(list: &[u8]) -> Option<impl Iterator<Item = (u16, [u8; 2], u32)> + '_> {
    let rest = list.strip_prefix(&VERSION)?;
    let (entries, trailing) = rest.as_chunks::<ENTRY_LEN>();
    trailing.is_empty().then(|| {
        entries.iter().map(|[t, u, p, q, a, b, c, d]| {
            (u16::from_le_bytes([*t, *u]), [*p, *q], u32::from_le_bytes([*a, *b, *c, *d]))
        })
    })
}

/// Returns the users and groups that a list names.
pub fn named_subjects(list: &[u8]) -> impl Iterator<Item = AclSubject> + '_ {
    parse(list).into_iter().flatten().filter_map(|(tag, _, id)| match tag {
        USER => Some(AclSubject::User(id)),
        GROUP => Some(AclSubject::Group(id)),
        _ => None,
    })
}

/// Translates the ids of another host's list to this host's. Entries of one tag are sorted by id, as acl(3) writes
/// them. If two ids map to the same one, only the first entry is kept, because the kernel rejects duplicates. Anything
/// that is not a list of this version is returned unchanged.
pub fn localize(list: &[u8], numbers: &IdMap) -> Vec<u8> {
    let Some(entries) = parse(list) else { return list.to_vec() };
    let mapped = entries.map(|(tag, permissions, id)| match tag {
        USER => (tag, permissions, numbers.user(id)),
        GROUP => (tag, permissions, numbers.group(id)),
        _ => (tag, permissions, id),
    });
    let mut mapped: Vec<_> = mapped.collect();
    mapped.sort_by_key(|(tag, _, id)| (*tag, *id));
    mapped.dedup_by_key(|(tag, _, id)| (*tag, *id));
    let mut list = VERSION.to_vec();
    for (tag, permissions, id) in mapped {
        list.extend(tag.to_le_bytes());
        list.extend(permissions);
        list.extend(id.to_le_bytes());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::object::Owners;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut list = VERSION.to_vec();
        for (tag, permissions, id) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(permissions.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        list
    }

    /// The id of entries that name nobody (`ACL_UNDEFINED_ID`).
    const UNDEFINED: u32 = u32::MAX;

    #[test]
    fn user_and_group_ids_are_translated_by_name() {
        let there = list(&[
            (1, 7, UNDEFINED),
            (USER, 5, 4711),
            (USER, 4, 9),
            (4, 5, UNDEFINED),
            (GROUP, 6, 4712),
            (16, 7, UNDEFINED),
            (32, 0, UNDEFINED),
        ]);
        let owners = Owners {
            users: vec![(4711, b"root".to_vec())],
            groups: vec![(4712, b"root".to_vec())],
        };
        let wanted = list(&[
            (1, 7, UNDEFINED),
            (USER, 5, 0),
            (USER, 4, 9),
            (4, 5, UNDEFINED),
            (GROUP, 6, 0),
            (16, 7, UNDEFINED),
            (32, 0, UNDEFINED),
        ]);
        assert_eq!(localize(&there, &IdMap::from_owners(&owners)), wanted);
        assert_eq!(
            localize(&there, &IdMap::default())[..12],
            there[..12],
            "unknown names keep their ids"
        );
        let entries: Vec<AclSubject> = named_subjects(&there).collect();
        assert_eq!(entries, [AclSubject::User(4711), AclSubject::User(9), AclSubject::Group(4712)]);
        let two = list(&[(USER, 5, 4711), (USER, 1, 0)]);
        assert_eq!(
            localize(&two, &IdMap::from_owners(&owners)),
            list(&[(USER, 5, 0)]),
            "duplicates are dropped"
        );
    }

    #[test]
    fn malformed_lists_are_returned_unchanged() {
        for odd in [&b""[..], b"\x01\0\0\0", b"\x02\0\0\0\x01"] {
            assert_eq!(localize(odd, &IdMap::default()), odd);
            assert_eq!(named_subjects(odd).count(), 0);
        }
    }
}
