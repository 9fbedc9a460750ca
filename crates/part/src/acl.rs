//! Access control lists in the kernel's form (linux/posix_acl_xattr.h, version 2): a version, then for each entry a tag,
//! permissions and a number, little-endian.

use crate::names::Numbers;

const VERSION: [u8; 4] = [2, 0, 0, 0];

const ENTRY: usize = 8;

/// A user, and a group, by their numbers (linux/posix_acl.h).
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;

/// Whom an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A user of this number.
    User(u32),
    /// A group of this number.
    Group(u32),
}

/// Tag, permissions and number; `None`: it is no list of this version.
fn entries(list: &[u8]) -> Option<impl Iterator<Item = (u16, [u8; 2], u32)> + '_> {
    let rest = list.strip_prefix(&VERSION)?;
    let (entries, odd) = rest.as_chunks::<ENTRY>();
    odd.is_empty().then(|| {
        entries.iter().map(|[t, u, p, q, a, b, c, d]| {
            (u16::from_le_bytes([*t, *u]), [*p, *q], u32::from_le_bytes([*a, *b, *c, *d]))
        })
    })
}

/// The users and groups that a list names.
pub fn named(list: &[u8]) -> impl Iterator<Item = Who> + '_ {
    entries(list).into_iter().flatten().filter_map(|(tag, _, number)| match tag {
        USER => Some(Who::User(number)),
        GROUP => Some(Who::Group(number)),
        _ => None,
    })
}

/// Another host's list as this one has it. Entries of one kind are in the order of their numbers, as acl(3) writes
/// them; of two that become one number here the first stays, as the kernel takes no list with both.
pub fn here(list: &[u8], numbers: &Numbers) -> Vec<u8> {
    let Some(entries) = entries(list) else { return list.to_vec() };
    let mapped = entries.map(|(tag, permissions, number)| match tag {
        USER => (tag, permissions, numbers.user(number)),
        GROUP => (tag, permissions, numbers.group(number)),
        _ => (tag, permissions, number),
    });
    let mut mapped: Vec<_> = mapped.collect();
    mapped.sort_by_key(|(tag, _, number)| (*tag, *number));
    mapped.dedup_by_key(|(tag, _, number)| (*tag, *number));
    let mut list = VERSION.to_vec();
    for (tag, permissions, number) in mapped {
        list.extend(tag.to_le_bytes());
        list.extend(permissions);
        list.extend(number.to_le_bytes());
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::object::Owners;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut list = VERSION.to_vec();
        for (tag, permissions, number) in entries {
            list.extend(tag.to_le_bytes());
            list.extend(permissions.to_le_bytes());
            list.extend(number.to_le_bytes());
        }
        list
    }

    const NOBODY: u32 = u32::MAX;

    #[test]
    fn numbers_of_users_and_groups_are_those_of_here() {
        let there = list(&[
            (1, 7, NOBODY),
            (USER, 5, 4711),
            (USER, 4, 9),
            (4, 5, NOBODY),
            (GROUP, 6, 4712),
            (16, 7, NOBODY),
            (32, 0, NOBODY),
        ]);
        let owners = Owners {
            users: vec![(4711, b"root".to_vec())],
            groups: vec![(4712, b"root".to_vec())],
        };
        let wanted = list(&[
            (1, 7, NOBODY),
            (USER, 5, 0),
            (USER, 4, 9),
            (4, 5, NOBODY),
            (GROUP, 6, 0),
            (16, 7, NOBODY),
            (32, 0, NOBODY),
        ]);
        assert_eq!(here(&there, &Numbers::of(&owners)), wanted);
        assert_eq!(here(&there, &Numbers::default())[..12], there[..12], "by number");
        let whom: Vec<Who> = named(&there).collect();
        assert_eq!(whom, [Who::User(4711), Who::User(9), Who::Group(4712)]);
        let two = list(&[(USER, 5, 4711), (USER, 1, 0)]);
        assert_eq!(here(&two, &Numbers::of(&owners)), list(&[(USER, 5, 0)]), "one of each");
    }

    #[test]
    fn what_is_no_list_stays_as_it_is() {
        for odd in [&b""[..], b"\x01\0\0\0", b"\x02\0\0\0\x01"] {
            assert_eq!(here(odd, &Numbers::default()), odd);
            assert_eq!(named(odd).count(), 0);
        }
    }
}
