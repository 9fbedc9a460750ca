//! What is kept of what comes: as much as is asked for and allowed.

use super::May;
use crate::Reader;
use std::ffi::OsString;
use thalweg_part::{Attributes, Dress, Owner, gives_away, names::Numbers, xattr::Word};
use thalweg_wire::object::{Delivery, Described, Entry, Failure, MAX_NAMED, Owners, Rules};

/// Puts the numbers of this host's users and groups into entries, in place of those of the sender's. The rights come
/// first: a look for a name may ask another host.
///
/// # Errors
/// [`Failure::NotOffered`].
pub(crate) fn localize(reader: &Reader, delivery: &mut Delivery) -> Result<(), Failure> {
    let Delivery { into, rules, entries, owners } = delivery;
    let entries = entries.iter_mut().map(|Described(entry)| entry);
    translate(reader, into, *rules, owners, entries)
}

/// The same for one entry.
///
/// # Errors
/// [`Failure::NotOffered`].
pub(crate) fn localize_one(
    reader: &Reader,
    into: &[u8],
    rules: Rules,
    owners: &mut Owners,
    entry: &mut Entry,
) -> Result<(), Failure> {
    translate(reader, into, rules, owners, std::iter::once(entry))
}

fn translate<'e>(
    reader: &Reader,
    into: &[u8],
    rules: Rules,
    owners: &mut Owners,
    entries: impl Iterator<Item = &'e mut Entry>,
) -> Result<(), Failure> {
    reader.offers().writable(&reader.member, into.strip_suffix(b"/").unwrap_or(into))?;
    let is_numbered = [Rules::OWNER, Rules::GROUP, Rules::ACLS];
    if !is_numbered.into_iter().any(|rule| rules.has(rule)) || *owners == Owners::default() {
        return Ok(());
    }
    owners.users.truncate(MAX_NAMED);
    owners.groups.truncate(MAX_NAMED);
    let numbers = Numbers::of(owners);
    for entry in entries {
        entry.owner = numbers.user(entry.owner);
        entry.group = numbers.group(entry.group);
        if let Some(more) = &mut entry.more {
            numbers.xattrs_here(&mut more.xattrs);
        }
    }
    Ok(())
}

/// Of these rules what is not followed in a directory, and why.
pub(super) fn declined(rules: Rules, may: May) -> Option<(Rules, Failure)> {
    let asked = rules.common(Rules::OWNER.and(Rules::GROUP));
    let why = match (asked == Rules::default(), gives_away(), may.owners) {
        (true, ..) | (_, true, true) => return None,
        (_, false, _) => "its node does not run as root, who alone can give files to others",
        _ => {
            "its node's settings have no `owners = true` beside that directory in `[files] accept`"
        }
    };
    Some((asked, Failure::System(why.to_owned())))
}

/// All that an entry gets there. Never the bits by which a program has another's rights; users, groups and these
/// are for the settings to allow.
pub(crate) fn dress_of(entry: &Entry, rules: Rules, may: May) -> Dress<'_> {
    let owns = may.owners && gives_away();
    let kept = |rule: Rules, number: u32| (owns && rules.has(rule)).then_some(number);
    let owner =
        Owner { user: kept(Rules::OWNER, entry.owner), group: kept(Rules::GROUP, entry.group) };
    let attributes = Attributes { owner, mode: entry.mode & 0o777, modified: entry.modified };
    let xattrs = entry.more.as_ref().map_or(&[][..], |more| &more.xattrs);
    Dress { attributes, xattrs, keep: rules.attributes(), by: Word::Guest }
}

/// Whether it has holes.
pub(super) fn is_sparse(entry: &Entry) -> bool {
    entry.more.as_ref().is_some_and(|more| more.holes.is_some())
}

/// The same for a name each time, so that a file that is sent again after a crash takes its leftover away.
pub(super) fn temporary(name: &[u8]) -> OsString {
    let hash = blake3::hash(name).to_hex();
    format!("{TEMPORARY}{}", &hash.as_str()[..24]).into()
}

/// Begins the names of files that have not got theirs yet.
pub(super) const TEMPORARY: &str = ".thalweg-sent-";
