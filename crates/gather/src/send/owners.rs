//! Names of users and groups of this host, as far as a request needs them.

use std::collections::{BTreeMap, BTreeSet};
use thalweg_part::acl::{self, Who};
use thalweg_part::xattr::is_list;
use thalweg_wire::object::{Entry, MAX_NAMED, Owners, Rules};

/// The most bytes of names in one request; of more owners the numbers are kept.
const MOST_NAMES: usize = 64 << 10;

/// By their numbers.
#[derive(Debug, Default)]
pub(super) struct OwnerNames {
    users: BTreeMap<u32, Vec<u8>>,
    groups: BTreeMap<u32, Vec<u8>>,
}

impl OwnerNames {
    /// All that are known.
    pub fn of(owners: Owners) -> Self {
        let Owners { users, groups } = owners;
        Self { users: users.into_iter().collect(), groups: groups.into_iter().collect() }
    }

    /// Of those whom these entries number, in what is kept of them.
    pub fn of_entries<'e>(
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
                for who in acl::named(&list.value) {
                    match who {
                        Who::User(number) => _ = users.insert(number),
                        Who::Group(number) => _ = groups.insert(number),
                    }
                }
            }
        }
        let mut room = MOST_NAMES;
        let users = named(&self.users, users, &mut room);
        Owners { users, groups: named(&self.groups, groups, &mut room) }
    }
}

fn named(
    names: &BTreeMap<u32, Vec<u8>>,
    numbers: BTreeSet<u32>,
    room: &mut usize,
) -> Vec<(u32, Vec<u8>)> {
    let known =
        numbers.into_iter().filter_map(|number| Some((number, names.get(&number)?.clone())));
    let fits = known.take_while(|(_, name)| {
        let left = room.checked_sub(name.len() + 8);
        *room = left.unwrap_or(0);
        left.is_some()
    });
    fits.take(MAX_NAMED).collect()
}
