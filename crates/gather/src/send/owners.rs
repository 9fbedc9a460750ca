//! Selects the names of users and groups that a request needs.

use std::collections::{BTreeMap, BTreeSet};
use thalweg_part::acl::{self, AclSubject};
use thalweg_part::xattr::is_list;
use thalweg_wire::object::{Entry, MAX_NAMED, Owners, Rules};

/// The most bytes of names in one request. Users and groups whose names do not fit keep their ids.
const MAX_NAME_BYTES: usize = 64 << 10;

/// Names of users and groups, by id.
#[derive(Debug, Default)]
pub(super) struct OwnerNames {
    users: BTreeMap<u32, Vec<u8>>,
    groups: BTreeMap<u32, Vec<u8>>,
}

impl OwnerNames {
    /// Creates the table from all names that are known.
    pub fn of(owners: Owners) -> Self {
        let Owners { users, groups } = owners;
        Self { users: users.into_iter().collect(), groups: groups.into_iter().collect() }
    }

    /// Returns the names of the users and groups in these entries: of owners and groups if `rules` keep them, and of
    /// access control lists.
    pub fn for_entries<'e>(
        &self,
        entries: impl IntoIterator<Item = &'e Entry>,
        rules: Rules,
    ) -> Owners {
        if self.users.is_empty() && self.groups.is_empty() {
            return Owners::default();
        }
        let (mut users, mut groups) = (BTreeSet::new(), BTreeSet::new());
        for entry in entries {
            users.extend(rules.has(Rules::OWNER).then_some(entry.owner));
            groups.extend(rules.has(Rules::GROUP).then_some(entry.group));
            let xattrs = entry.more.iter().flat_map(|more| &more.xattrs);
            for list in xattrs.filter(|xattr| is_list(&xattr.name)) {
                for who in acl::named_subjects(&list.value) {
                    match who {
                        AclSubject::User(id) => _ = users.insert(id),
                        AclSubject::Group(id) => _ = groups.insert(id),
                    }
                }
            }
        }
        let mut room = MAX_NAME_BYTES;
        let users = select(&self.users, users, &mut room);
        Owners { users, groups: select(&self.groups, groups, &mut room) }
    }
}

/// Returns the names of these ids until `room` bytes are used.
fn select(
    names: &BTreeMap<u32, Vec<u8>>,
    ids: BTreeSet<u32>,
    room: &mut usize,
) -> Vec<(u32, Vec<u8>)> {
    let known = ids.into_iter().filter_map(|id| Some((id, names.get(&id)?.clone())));
    let fits = known.take_while(|(_, name)| {
        let left = room.checked_sub(name.len() + 8);
        *room = left.unwrap_or(0);
        left.is_some()
    });
    fits.take(MAX_NAMED).collect()
}
