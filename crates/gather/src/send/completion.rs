//! Last steps once all files have arrived: hard links, removal of surplus items, and modes and times of directories.

use super::{super::Event, SendState, receiver_survey};
use std::collections::{BTreeMap, BTreeSet};
use thalweg_files::remote::{Remote, RemoteError};
use thalweg_wire::object::{FilePath, Link, Links, MAX_KEPT, SurplusRemoval};
use tokio::task::spawn_blocking;

/// The maximum number of bytes of names in one request.
const MOST_NAMES: usize = 700 << 10;

/// The maximum number of hard links in one request: each has two paths of up to 4 KiB, in a message of 1 MiB.
const MAX_LINKS: usize = 100;

/// The maximum number of removed names to report.
const TOLD: usize = 20;

/// The items that were removed at the receiver, or would be.
#[derive(Debug, Default)]
pub(super) struct Removal {
    pub count: u64,
    pub names: Vec<String>,
    /// Items that could not be removed.
    pub failed: Vec<(String, String)>,
}

/// The result of creating hard links.
#[derive(Debug, Default)]
pub(super) struct LinkReport {
    /// The number of links created.
    pub made: u64,
    /// The number of links that existed already.
    pub present: u64,
    /// Links that failed, and why.
    pub failed: Vec<(String, String)>,
}

/// Creates the hard links; without `make` only reports which would fail.
pub(super) async fn link(shared: &SendState, make: bool) -> LinkReport {
    let mut linked = LinkReport::default();
    if shared.links.is_empty() {
        return linked;
    }
    let mut remote = match remote(shared).await {
        Ok(remote) => remote,
        Err(why) => {
            linked.failed.push((shared.target(), why));
            return linked;
        }
    };
    for batch in shared.links.chunks(MAX_LINKS) {
        if let Err(why) = link_batch(shared, &mut remote, make, batch, &mut linked).await {
            linked.failed.push((shared.target(), format!("hard links: {why}")));
            return linked;
        }
    }
    shared.idle().replace(remote);
    linked
}

/// Creates the links of one request.
async fn link_batch(
    shared: &SendState,
    remote: &mut Remote,
    make: bool,
    batch: &[(usize, FilePath)],
    linked: &mut LinkReport,
) -> Result<(), RemoteError> {
    let (items, wanted) = (shared.items.clone(), batch.to_vec());
    let read = move || {
        let link = |(index, name): (usize, FilePath)| {
            let (first, size) = (items[index].entry.path.clone(), items[index].size());
            let check = items[index].digest(false);
            (name.clone(), check.map(|check| Link { first, size, check, name }))
        };
        wanted.into_iter().map(link).collect::<Vec<_>>()
    };
    let shown = |name: &FilePath| shared.below(&[name.as_bytes()]);
    let mut links = Vec::new();
    for (name, link) in spawn_blocking(read).await.unwrap_or_default() {
        match link {
            Ok(link) => links.push(link),
            Err(why) => linked.failed.push((shown(&name), why)),
        }
    }
    let names: Vec<FilePath> = links.iter().map(|link| link.name.clone()).collect();
    let (into, rules) = (shared.request.into.clone(), shared.rules);
    let (present, undone) = remote.link(Links { into, rules, links, make }).await?;
    let failed = undone.failures().filter_map(|(number, why)| {
        names.get(number as usize).map(|name| (shown(name), why.to_string()))
    });
    let before = linked.failed.len();
    linked.failed.extend(failed);
    let not_made = present + (linked.failed.len() - before) as u64;
    linked.made += (names.len() as u64).saturating_sub(not_made);
    linked.present += present;
    Ok(())
}

/// Sets the modes and times of all directories and of these files. Returns the failures.
pub(super) async fn set_metadata(shared: &SendState, undressed: &[usize]) -> Vec<(String, String)> {
    let directories = (0..shared.items.len()).filter(|index| shared.items[*index].is_directory());
    // In reverse order of paths, so that the contents of a directory precede it.
    let all: Vec<usize> = undressed.iter().copied().chain(directories.rev()).collect();
    if all.is_empty() {
        return Vec::new();
    }
    let mut remote = match remote(shared).await {
        Ok(remote) => remote,
        Err(why) => return vec![(shared.target(), why)],
    };
    let (mut failed, mut kept) = (Vec::new(), Vec::new());
    for these in receiver_survey::chunks(&shared.items, &all) {
        let dressed = remote.set_metadata(shared.delivery(these)).await;
        let (undone, wider) = match dressed {
            Ok(dressed) => dressed,
            Err(why) => {
                failed
                    .push((shared.target(), format!("cannot set the modes of directories: {why}")));
                break;
            }
        };
        let name =
            |number: u32| these.get(number as usize).map(|index| shared.receiver_path(*index));
        for (number, why) in undone.failures() {
            // A directory that could not be created has already been reported.
            let known = these.get(number as usize).is_some_and(|i| shared.queue().has_failed(*i));
            failed.extend(name(number).filter(|_| !known).map(|name| (name, why.to_string())));
        }
        kept.extend(wider.failures().filter_map(|(n, why)| Some((name(n)?, why.to_string()))));
    }
    shared.idle().replace(remote);
    report_wider(shared, &kept);
    failed
}

/// Reports directories that more users can read than here, because a user may rely on a private directory.
fn report_wider(shared: &SendState, kept: &[(String, String)]) {
    let Some((first, why)) = kept.first() else { return };
    let more =
        if kept.len() > 1 { format!(", and {} more", kept.len() - 1) } else { String::new() };
    let text = format!("{first}: {why}, so more users can read its content there than here{more}");
    shared.events.event(Event::Note { text });
}

/// Removes items that are in directories at the receiver and not here; without `remove` only reports them.
pub(super) async fn clear(shared: &SendState, remove: bool) -> Removal {
    let mut removal = Removal::default();
    let done = match remote(shared).await {
        Ok(mut remote) => match clear_all(shared, &mut remote, remove, &mut removal).await {
            Ok(()) => {
                shared.idle().replace(remote);
                Ok(())
            }
            Err(RemoteError::Refused { why, .. }) => Err(why.to_string()),
            Err(why) => Err(why.to_string()),
        },
        Err(why) => Err(why),
    };
    if let Err(why) = done {
        removal.failed.push((shared.target(), why));
    }
    removal
}

async fn clear_all(
    shared: &SendState,
    remote: &mut Remote,
    remove: bool,
    removal: &mut Removal,
) -> Result<(), RemoteError> {
    let names = names(shared);
    for directory in shared.items.iter().filter(|item| item.is_directory()) {
        let path = directory.entry.path.as_bytes();
        for (after, to, keep) in
            names.get(path).map(ranges).unwrap_or_else(|| ranges(&BTreeSet::new()))
        {
            let surplus = SurplusRemoval {
                into: shared.request.into.clone(),
                directory: directory.entry.path.clone(),
                after,
                to,
                keep,
                remove,
                exclude: shared.request.exclude.clone(),
            };
            let removed = remote.clear(surplus).await?;
            removal.count += removed.count;
            let shown = |name: &[u8]| shared.below(&[path, name]);
            let names = removed.names.iter().map(|name| shown(name));
            let room = TOLD.saturating_sub(removal.names.len());
            removal.names.extend(names.take(room));
            let failed = removed.failed.iter().map(|(name, why)| (shown(name), why.to_string()));
            removal.failed.extend(failed);
        }
    }
    Ok(())
}

/// The names in each directory here, including those that are left out.
fn names(shared: &SendState) -> BTreeMap<&[u8], BTreeSet<&[u8]>> {
    let mut names: BTreeMap<&[u8], BTreeSet<&[u8]>> = BTreeMap::new();
    let items = shared.items.iter().map(|item| &item.entry.path);
    let paths = items.chain(shared.links.iter().map(|(_, name)| name)).map(FilePath::as_bytes);
    for path in paths.filter(|path| !path.is_empty()) {
        let (above, name) = match path.iter().rposition(|letter| *letter == b'/') {
            Some(end) => (&path[..end], &path[end + 1..]),
            None => (&b""[..], path),
        };
        names.entry(above).or_default().insert(name);
    }
    for (above, left) in &shared.left {
        names.entry(above).or_default().extend(left.iter().map(Vec::as_slice));
    }
    names
}

/// A range of names: the name before it, its last name (empty: no limit), and the names in it that stay.
type NameRange = (Vec<u8>, Vec<u8>, Vec<Vec<u8>>);

/// Splits ascending names into requests of bounded size.
fn ranges(names: &BTreeSet<&[u8]>) -> Vec<NameRange> {
    let (mut all, mut after, mut keep, mut bytes) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for name in names {
        bytes += name.len() + 4;
        keep.push(name.to_vec());
        if keep.len() == MAX_KEPT || bytes >= MOST_NAMES {
            bytes = 0;
            all.push((after, name.to_vec(), std::mem::take(&mut keep)));
            after = name.to_vec();
        }
    }
    all.push((after, Vec::new(), keep));
    all
}

async fn remote(shared: &SendState) -> Result<Remote, String> {
    let idle = shared.idle().take();
    match idle {
        Some(remote) => Ok(remote),
        None => receiver_survey::open(shared).await.map_err(|why| why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_all_names() {
        let names: Vec<Vec<u8>> =
            (0..2 * MAX_KEPT + 5).map(|n| format!("{n:08}").into_bytes()).collect();
        for count in [0, 1, MAX_KEPT, MAX_KEPT + 1, names.len()] {
            let all: BTreeSet<&[u8]> = names[..count].iter().map(Vec::as_slice).collect();
            let ranges = ranges(&all);
            assert_eq!((&ranges[0].0[..], &ranges[ranges.len() - 1].1[..]), (&b""[..], &b""[..]));
            let mut kept = 0;
            for two in ranges.windows(2) {
                assert_eq!(two[0].1, two[1].0, "nothing lies between");
            }
            for (after, to, keep) in &ranges {
                kept += keep.len();
                assert!(keep.len() <= MAX_KEPT);
                assert!(keep.iter().all(|name| name > after && (to.is_empty() || name <= to)));
            }
            assert_eq!(kept, count);
        }
    }
}
