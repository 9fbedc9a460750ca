//! The metadata of delivered files: what the sender requests and the settings allow.

use super::StoreRights;
use crate::Requester;
use thalweg_part::{
    Attributes, FileMetadata, Owner, gives_away, names::IdMap, xattr::AttributeOrigin,
};
use thalweg_wire::object::{Delivery, DescribedEntry, Entry, Failure, MAX_NAMED, Owners, Rules};

/// Replaces the sender's user and group ids in entries by this host's ids for the same names. Checks the member's
/// rights first, because looking up a name may query another host.
///
/// # Errors
/// [`Failure::NotOffered`].
pub(crate) fn localize(requester: &Requester, delivery: &mut Delivery) -> Result<(), Failure> {
    let Delivery { into, rules, entries, owners } = delivery;
    let entries = entries.iter_mut().map(|DescribedEntry(entry)| entry);
    translate(requester, into, *rules, owners, entries)
}

/// Like [`localize`], for one entry.
///
/// # Errors
/// [`Failure::NotOffered`].
pub(crate) fn localize_one(
    requester: &Requester,
    into: &[u8],
    rules: Rules,
    owners: &mut Owners,
    entry: &mut Entry,
) -> Result<(), Failure> {
    translate(requester, into, rules, owners, std::iter::once(entry))
}

fn translate<'e>(
    requester: &Requester,
    into: &[u8],
    rules: Rules,
    owners: &mut Owners,
    entries: impl Iterator<Item = &'e mut Entry>,
) -> Result<(), Failure> {
    let into = into.strip_suffix(b"/").unwrap_or(into);
    let (place, _) = requester.offers().writable(&requester.member, into)?;
    let (users, groups) = used_names(rules, place.may.owners && gives_away());
    owners.users.truncate(if users { MAX_NAMED } else { 0 });
    owners.groups.truncate(if groups { MAX_NAMED } else { 0 });
    if *owners == Owners::default() {
        return Ok(());
    }
    let numbers = IdMap::from_owners(owners);
    for entry in entries {
        entry.owner = numbers.user(entry.owner);
        entry.group = numbers.group(entry.group);
        if let Some(more) = &mut entry.more {
            numbers.localize_xattrs(&mut more.xattrs);
        }
    }
    Ok(())
}

/// Whether the names of users and of groups are needed: for owners only if they are set, for access control lists
/// always. Names that are not needed are not looked up.
fn used_names(rules: Rules, sets_owners: bool) -> (bool, bool) {
    let is_used = |rule| rules.has(Rules::ACLS) || (sets_owners && rules.has(rule));
    (is_used(Rules::OWNER), is_used(Rules::GROUP))
}

/// Returns the rules that this node does not follow in a directory, and why.
pub(super) fn declined_rules(rules: Rules, may: StoreRights) -> Option<(Rules, Failure)> {
    let requested = rules.common(Rules::OWNER.and(Rules::GROUP));
    let why = match (requested == Rules::default(), gives_away(), may.owners) {
        (true, ..) | (_, true, true) => return None,
        (_, false, _) => "the receiving node does not run as root, and only root can change owners",
        _ => {
            "the receiving node's settings do not set `owners = true` for that directory in `[files] accept`"
        }
    };
    Some((requested, Failure::System(why.to_owned())))
}

/// The metadata to set for an entry. Set-user, set-group and sticky bits are never kept; owners and groups only if the
/// settings allow it.
pub(crate) fn metadata_of(entry: &Entry, rules: Rules, may: StoreRights) -> FileMetadata<'_> {
    let sets_owners = may.owners && gives_away();
    let kept = |rule: Rules, id: u32| (sets_owners && rules.has(rule)).then_some(id);
    let owner =
        Owner { user: kept(Rules::OWNER, entry.owner), group: kept(Rules::GROUP, entry.group) };
    let attributes = Attributes { owner, mode: entry.mode & 0o777, modified: entry.modified };
    let xattrs = entry.more.as_ref().map_or(&[][..], |more| &more.xattrs);
    FileMetadata { attributes, xattrs, keep: rules.attributes(), origin: AttributeOrigin::Guest }
}

/// Whether the entry is a sparse file.
pub(super) fn is_sparse(entry: &Entry) -> bool {
    entry.more.as_ref().is_some_and(|more| more.holes.is_some())
}

/// The length of an entry's extended attributes and access control lists.
pub(crate) fn xattr_bytes(entry: &Entry) -> u64 {
    let xattrs = entry.more.as_ref().map_or(&[][..], |more| &more.xattrs);
    xattrs.iter().map(|xattr| (xattr.name.len() + xattr.value.len()) as u64).sum()
}
