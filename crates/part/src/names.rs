//! Names of users and groups, and their ids on this host.

use crate::{acl, xattr};
use nix::unistd::{Gid, Group, Uid, User};
use std::collections::BTreeMap;
use thalweg_wire::object::{Owners, Xattr};

/// The longest name that is looked up (`LOGIN_NAME_MAX`).
const MAX_NAME: usize = 256;

/// The name of a user of this host; `None` if there is none, or the lookup fails.
pub fn user(number: u32) -> Option<Vec<u8>> {
    User::from_uid(Uid::from_raw(number)).ok()?.map(|user| user.name.into_bytes())
}

/// The name of a group of this host; `None` if there is none, or the lookup fails.
pub fn group(number: u32) -> Option<Vec<u8>> {
    Group::from_gid(Gid::from_raw(number)).ok()?.map(|group| group.name.into_bytes())
}

/// Translates another host's ids to this host's by name, like rsync: root stays root, and an unknown user or group
/// keeps its id.
#[derive(Clone, Debug, Default)]
pub struct IdMap {
    users: BTreeMap<u32, u32>,
    groups: BTreeMap<u32, u32>,
}

impl IdMap {
    /// Maps these names to ids with this host's tables of users and groups.
    pub fn from_owners(owners: &Owners) -> Self {
        let user = |name: &str| User::from_name(name).ok()?.map(|user| user.uid.as_raw());
        let group = |name: &str| Group::from_name(name).ok()?.map(|group| group.gid.as_raw());
        Self::from_lookups(owners, user, group)
    }

    /// Maps these names to ids with the lookups `user` and `group`.
    pub fn from_lookups(
        owners: &Owners,
        user: impl Fn(&str) -> Option<u32>,
        group: impl Fn(&str) -> Option<u32>,
    ) -> Self {
        Self { users: numbers(&owners.users, user), groups: numbers(&owners.groups, group) }
    }

    /// This host's id of a user of the other host.
    pub fn user(&self, number: u32) -> u32 {
        self.users.get(&number).copied().unwrap_or(number)
    }

    /// This host's id of a group of the other host.
    pub fn group(&self, number: u32) -> u32 {
        self.groups.get(&number).copied().unwrap_or(number)
    }

    /// Translates the user and group ids in access control lists.
    pub fn localize_xattrs(&self, xattrs: &mut [Xattr]) {
        for xattr in xattrs.iter_mut().filter(|xattr| xattr::is_list(&xattr.name)) {
            xattr.value = acl::localize(&xattr.value, self);
        }
    }
}

fn numbers(names: &[(u32, Vec<u8>)], number: impl Fn(&str) -> Option<u32>) -> BTreeMap<u32, u32> {
    let sound = names.iter().filter(|(there, name)| *there != 0 && name.len() <= MAX_NAME);
    let here = sound.filter_map(|(there, name)| {
        let name = std::str::from_utf8(name).ok().filter(|name| !name.contains('\0'))?;
        Some((*there, number(name)?))
    });
    here.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_users_and_groups_get_this_hosts_id() {
        let owners = Owners {
            users: vec![
                (4711, b"root".to_vec()),
                (0, b"nobody".to_vec()),
                (5, b"no such".to_vec()),
            ],
            groups: vec![(4712, b"root".to_vec()), (6, vec![0xff]), (7, b"a\0b".to_vec())],
        };
        let numbers = IdMap::from_owners(&owners);
        assert_eq!(user(0).as_deref(), Some(&b"root"[..]), "this host has a root");
        let here = |numbers: &IdMap, user, group| (numbers.user(user), numbers.group(group));
        assert_eq!(here(&numbers, 4711, 4712), (0, 0));
        assert_eq!(here(&numbers, 0, 6), (0, 6), "root is root");
        assert_eq!(here(&numbers, 5, 7), (5, 7));
        assert_eq!(here(&IdMap::default(), 4711, 4712), (4711, 4712));
    }

    /// A table of users or groups.
    type Table = &'static [(&'static str, u32)];

    #[test]
    fn ids_are_mapped_by_name_like_in_rsync() {
        const THERE: Table =
            &[("root", 0), ("ann", 1000), ("bob", 1001), ("eve", 1002), ("daemon", 1)];
        const HERE: Table =
            &[("root", 0), ("bob", 1000), ("ann", 2000), ("daemon", 1), ("kim", 1002)];
        let find = |table: Table, name: &str| {
            table.iter().find(|(known, _)| *known == name).map(|(_, id)| *id)
        };
        // The names that a source sends: one for each id that has a name there.
        let names: Vec<(u32, Vec<u8>)> =
            THERE.iter().map(|(name, id)| (*id, name.as_bytes().to_vec())).collect();
        let by_name = Owners { users: names.clone(), groups: names };
        let numeric = Owners::default();
        for (what, owners, there, here) in [
            ("root is root", &by_name, 0, 0),
            ("another id of the same name", &by_name, 1000, 2000),
            ("an id that is another user's here", &by_name, 1001, 1000),
            ("the same id of the same name", &by_name, 1, 1),
            ("a name that is not here keeps its id, whoever has that here", &by_name, 1002, 1002),
            ("an id without a name there", &by_name, 4000, 4000),
            ("an id without a name there that has one here", &by_name, 2000, 2000),
            ("--numeric-ids: a name of both hosts", &numeric, 1000, 1000),
            ("--numeric-ids: an id that is another user's here", &numeric, 1001, 1001),
        ] {
            let numbers =
                IdMap::from_lookups(owners, |name| find(HERE, name), |name| find(HERE, name));
            assert_eq!((numbers.user(there), numbers.group(there)), (here, here), "{what}");
        }
        let users_only = Owners { groups: Vec::new(), ..by_name };
        let numbers =
            IdMap::from_lookups(&users_only, |name| find(HERE, name), |name| find(HERE, name));
        assert_eq!(
            (numbers.user(1000), numbers.group(1000)),
            (2000, 1000),
            "each by its own table"
        );
    }
}
