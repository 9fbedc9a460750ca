//! Before anything moves: what is there, what is missing, and what would not be taken.

use super::{Present, SendError, Shared, local::Local, way::gaps};
use std::{collections::VecDeque, ops::Range, time::Duration};
use thalweg_files::remote::{DELIVERIES_AHEAD, Remote, RemoteError};
use thalweg_part::Ranges;
use thalweg_wire::object::{
    Check, Delivery, Described, Entry, Failure, Found, Kind, MAX_DELIVERED, MAX_HASHED, Owners,
    Rules,
};
use tokio::{task::spawn_blocking, time::timeout};

/// Files up to this length go whole, many at a time; the node keeps no parts of shorter ones.
const SMALL: u64 = 256 << 10;

/// The most bytes of a question that are about entries.
const MOST_SAID: usize = 700 << 10;

/// Beside an entry's path and target: numbers, times and a hash.
const BESIDE: usize = 128;

/// Files that an old node is asked about ahead of its answers.
const ASKED: usize = 256;

/// What an old node cannot be asked, in words.
const OLD: &str = "it runs an older version, which takes files alone, one after the other: links and empty \
                   directories are not sent, nor are directories' modes and times";

/// What is there.
#[derive(Debug, Default)]
pub(super) struct Survey {
    pub present: Present,
    /// Directories that are to be made, by their indices.
    pub directories: Vec<usize>,
    /// Files that are there with another mode or time, which they are to get.
    pub undressed: Vec<usize>,
    /// The number of such directories.
    pub undressed_directories: u64,
    /// Bytes and files that there is room for.
    pub room: Option<(u64, u64)>,
    /// The rules that the node does not follow, and why.
    pub declined: Option<(Rules, Failure)>,
}

/// Of a request, the bytes that are about an entry.
pub(super) fn cost(entry: &Entry) -> usize {
    let target = match &entry.kind {
        Kind::Symlink { target } => target.len(),
        _ => 0,
    };
    let more = entry.more.as_ref().map_or(0, |more| more.memory());
    BESIDE + entry.path.as_bytes().len() + target + more
}

/// Asks the node, and puts what is missing into the queue.
///
/// # Errors
/// [`SendError`]: it cannot be reached at all, or takes nothing.
pub(super) async fn survey(shared: &Shared) -> Result<Survey, SendError> {
    // Not in the `match`: nothing is locked while it is opened.
    let idle = shared.idle().take();
    let mut remote = match idle {
        Some(remote) => remote,
        None => open(shared).await?,
    };
    let mut survey = Survey::default();
    let all: Vec<usize> = (0..shared.items.len()).collect();
    let alike = match look(shared, &mut remote, &mut survey, &all, None).await {
        Err(Unasked::Old) => return old(shared).await,
        looked => looked?,
    };
    look_at_content(shared, &mut remote, &mut survey, &alike).await?;
    shared.idle().replace(remote);
    Ok(survey)
}

/// Asks with hashes about files whose content is to be compared.
async fn look_at_content(
    shared: &Shared,
    remote: &mut Remote,
    survey: &mut Survey,
    mut alike: &[usize],
) -> Result<(), SendError> {
    while !alike.is_empty() {
        let (these, others) = alike.split_at(alike.len().min(MAX_DELIVERED));
        let (these, checks) = digests(shared, these).await;
        look(shared, remote, survey, &these, Some(checks)).await?;
        alike = others;
    }
    Ok(())
}

/// Asks once more about files that are sent in parts, and queues what is missing. Smaller ones are confirmed once they
/// are on the disk.
///
/// # Errors
/// [`SendError::Unreached`].
pub(super) async fn ask_again(shared: &Shared) -> Result<(), SendError> {
    if shared.is_old() {
        return old(shared).await.map(drop);
    }
    let mut remote = open(shared).await?;
    let in_parts: Vec<usize> = {
        let queue = shared.queue();
        let all = 0..shared.items.len();
        all.filter(|index| shared.items[*index].is_file() && shared.items[*index].size() > SMALL)
            .filter(|index| !queue.failed().contains_key(index))
            .collect()
    };
    let mut survey = Survey::default();
    let alike = look(shared, &mut remote, &mut survey, &in_parts, None).await?;
    look_at_content(shared, &mut remote, &mut survey, &alike).await?;
    shared.idle().replace(remote);
    Ok(())
}

/// A connection for questions.
///
/// # Errors
/// [`SendError::Unreached`].
pub(super) async fn open(shared: &Shared) -> Result<Remote, SendError> {
    let opened = Remote::open(&shared.reach, &shared.request.node, &[]).await;
    opened.map_err(|e| SendError::Unreached(e.to_string()))
}

/// It could not be asked.
enum Unasked {
    /// It did not answer at all; perhaps it does not know the question.
    Old,
    Failed(SendError),
}

impl From<Unasked> for SendError {
    fn from(why: Unasked) -> Self {
        match why {
            Unasked::Old => Self::Unreached("it ended the connection without an answer".to_owned()),
            Unasked::Failed(why) => why,
        }
    }
}

/// Asks about some things, with hashes of the same number or none; those whose content is to be compared.
async fn look(
    shared: &Shared,
    remote: &mut Remote,
    survey: &mut Survey,
    all: &[usize],
    checks: Option<Vec<Check>>,
) -> Result<Vec<usize>, Unasked> {
    let (mut alike, mut asked, mut is_first) = (Vec::new(), VecDeque::new(), checks.is_none());
    let (mut rest, mut checks) = (all, checks.unwrap_or_default());
    while !(rest.is_empty() && asked.is_empty()) {
        while !rest.is_empty() && asked.len() < DELIVERIES_AHEAD {
            let mut count = some(&shared.items, rest);
            if !checks.is_empty() && shared.rules.has(Rules::WHOLE) {
                count = count.min(hashed_at_once(rest.iter().map(|i| shared.items[*i].size())));
            }
            let (these, others) = rest.split_at(count);
            let with = checks.drain(..these.len().min(checks.len())).collect();
            let sent = remote.ask_compare(shared.delivery(these), with).await;
            sent.map_err(|why| unasked(shared, why, is_first))?;
            asked.push_back(these);
            rest = others;
        }
        let Some(these) = asked.pop_front() else { break };
        let compared = remote.compared(these.len()).await;
        let compared = compared.map_err(|why| unasked(shared, why, is_first))?;
        is_first = false;
        survey.room = compared.room;
        survey.declined = compared.declined.or(survey.declined.take());
        for (index, found) in these.iter().zip(compared.found) {
            let why = |number: u8| compared.reasons[usize::from(number)].to_string();
            match found {
                Found::Alike => alike.push(*index),
                Found::Refused(number) => shared.queue().fail(*index, why(number)),
                found => survey.note(shared, *index, found),
            }
        }
    }
    Ok(alike)
}

/// These in requests of a bounded size.
pub(super) fn chunks<'a>(
    items: &'a [Local],
    mut these: &'a [usize],
) -> impl Iterator<Item = &'a [usize]> {
    std::iter::from_fn(move || {
        let (first, rest) = these.split_at(these.len().min(some(items, these)));
        these = rest;
        (!first.is_empty()).then_some(first)
    })
}

/// How many of these go into one question.
fn some(items: &[Local], these: &[usize]) -> usize {
    let mut said = 0;
    let fits = these.iter().take(MAX_DELIVERED).take_while(|index| {
        said += cost(&items[**index].entry);
        said <= MOST_SAID
    });
    fits.count().max(1)
}

/// The number of files with these sizes that one request may have hashed completely.
fn hashed_at_once(sizes: impl Iterator<Item = u64>) -> usize {
    let sums = sizes.scan(0_u64, |sum, size| {
        *sum = sum.saturating_add(size);
        Some(*sum)
    });
    sums.take_while(|sum| *sum <= MAX_HASHED).count().max(1)
}

fn unasked(shared: &Shared, why: RemoteError, is_first: bool) -> Unasked {
    Unasked::Failed(match why {
        RemoteError::Refused { why: Failure::NotOffered(_), .. } => shared.not_accepted(),
        RemoteError::Lost { .. } if is_first => return Unasked::Old,
        why => SendError::Unreached(why.to_string()),
    })
}

impl Survey {
    /// The number of existing files and directories whose attributes are to change.
    pub fn attributes(&self) -> u64 {
        self.undressed.len() as u64 + self.undressed_directories
    }

    fn note(&mut self, shared: &Shared, index: usize, found: Found) {
        let item = &shared.items[index];
        let size = item.size();
        match found {
            Found::Same if item.is_directory() => {}
            Found::Undressed if item.is_directory() => self.undressed_directories += 1,
            Found::Same if item.is_link() => self.present.links += 1,
            Found::Same | Found::Undressed => {
                self.present.files += 1;
                self.present.bytes += size;
                if found == Found::Undressed {
                    self.undressed.push(index);
                }
            }
            _ if item.is_directory() => self.directories.push(index),
            _ if size <= SMALL => {
                shared.queue().add_whole(index, size, cost(&item.entry) as u32);
            }
            Found::Part(held) => self.queue_missing(shared, index, &held),
            _ => self.queue_missing(shared, index, &[]),
        }
    }

    /// Queues the ranges of a large file that the node does not hold, except holes. The ranges that the node reports
    /// are validated.
    fn queue_missing(&mut self, shared: &Shared, index: usize, held: &[(u64, u64)]) {
        let item = &shared.items[index];
        let size = item.size();
        let mut present = Ranges::default();
        held.iter()
            .filter(|(from, to)| from < to && *to <= size)
            .for_each(|(from, to)| present.insert(*from..*to));
        self.present.bytes += present.total();
        item.holes().iter().for_each(|(from, to)| present.insert(*from..*to));
        let mut queue = shared.queue();
        let missing = present.missing(size);
        match missing.is_empty() {
            // All bytes are there, but the file is not published yet: sending any byte publishes it.
            true => queue.add(index, size - 1..size),
            false => missing.into_iter().for_each(|gap| queue.add(index, gap)),
        }
    }
}

/// Hashes of files; those that cannot be read fail.
async fn digests(shared: &Shared, these: &[usize]) -> (Vec<usize>, Vec<Check>) {
    let whole = shared.rules.has(Rules::WHOLE);
    let (items, wanted) = (shared.items.clone(), these.to_vec());
    let read = move || {
        let of = |index: usize| (index, items[index].digest(whole));
        wanted.into_iter().map(of).collect::<Vec<_>>()
    };
    let (mut good, mut checks) = (Vec::new(), Vec::new());
    for (index, digest) in spawn_blocking(read).await.unwrap_or_default() {
        match digest {
            Ok(check) => {
                good.push(index);
                checks.push(check);
            }
            Err(why) => shared.queue().fail(index, why),
        }
    }
    (good, checks)
}

/// An old node is asked file by file; it takes nothing else.
async fn old(shared: &Shared) -> Result<Survey, SendError> {
    let mut remote = open(shared).await?;
    let files: Vec<usize> =
        (0..shared.items.len()).filter(|index| shared.items[*index].is_file()).collect();
    let (mut present, mut asked, mut is_first) = (Present::default(), 0, true);
    for (at, index) in files.iter().enumerate() {
        for ahead in files.iter().take(at + ASKED).skip(asked) {
            let sent = remote.ask_held(&shared.request.into, &shared.items[*ahead].entry).await;
            sent.map_err(|why| SendError::Unreached(why.to_string()))?;
            asked += 1;
        }
        match remote.holds().await {
            Ok(held) => hold(shared, *index, &held, &mut present),
            Err(RemoteError::Refused { why: Failure::NotOffered(_), .. }) => {
                return Err(shared.not_accepted());
            }
            Err(why @ RemoteError::Refused { .. }) => shared.queue().fail(*index, why.to_string()),
            Err(why) => return Err(SendError::Unreached(why.to_string())),
        }
        if std::mem::take(&mut is_first) {
            shared.is_old_from_now_on(OLD)?;
        }
    }
    shared.is_old_from_now_on(OLD)?;
    _ = timeout(Duration::from_secs(1), remote.close()).await;
    Ok(Survey { present, ..Survey::default() })
}

fn hold(shared: &Shared, index: usize, held: &[Range<u64>], present: &mut Present) {
    let size = shared.items[index].size();
    let there: u64 = held.iter().map(|range| range.end - range.start).sum();
    present.bytes += there;
    if there >= size && (size > 0 || !held.is_empty()) {
        present.files += 1;
        return;
    }
    let mut queue = shared.queue();
    if size == 0 {
        queue.add(index, 0..0);
    }
    gaps(held, size).for_each(|gap| queue.add(index, gap));
}

/// What a single file is called there, if the target is to be its name, not a directory to put it into.
///
/// # Errors
/// [`SendError`].
pub(super) async fn is_name(shared: &Shared, remote: &mut Remote) -> Result<bool, SendError> {
    let entry = super::directory_itself();
    let delivery = Delivery {
        into: shared.request.into.clone(),
        rules: shared.rules,
        entries: vec![Described(entry)],
        owners: Owners::default(),
    };
    let asked = remote.ask_compare(delivery, Vec::new()).await;
    asked.map_err(|why| SendError::Unreached(why.to_string()))?;
    match remote.compared(1).await {
        Ok(compared) => Ok(match compared.found[..] {
            // Something is there that is no directory.
            [Found::Refused(_)] => true,
            [Found::Nothing] => shared.request.looks_like_a_name(),
            _ => false,
        }),
        Err(RemoteError::Refused { .. }) => Ok(false),
        // An old node: it is asked what it understands.
        Err(_) => Ok(false),
    }
}

/// Makes the directories that are missing.
///
/// # Errors
/// [`SendError::Unreached`].
pub(super) async fn make_directories(shared: &Shared, survey: &Survey) -> Result<u64, SendError> {
    let (mut made, mut rest) = (0, &survey.directories[..]);
    if rest.is_empty() {
        return Ok(0);
    }
    let idle = shared.idle().take();
    let mut remote = match idle {
        Some(remote) => remote,
        None => open(shared).await?,
    };
    let mut asked: VecDeque<&[usize]> = VecDeque::new();
    while !(rest.is_empty() && asked.is_empty()) {
        while !rest.is_empty() && asked.len() < DELIVERIES_AHEAD {
            let (these, others) = rest.split_at(some(&shared.items, rest));
            let sent = remote.ask_put(shared.delivery(these), bytes::Bytes::new()).await;
            sent.map_err(|why| SendError::Unreached(why.to_string()))?;
            asked.push_back(these);
            rest = others;
        }
        let Some(these) = asked.pop_front() else { break };
        let undone = remote.delivered().await;
        let undone = undone.map_err(|why| SendError::Unreached(why.to_string()))?;
        made += these.len() as u64;
        for (number, why) in undone.by_number() {
            let Some(index) = these.get(number as usize) else { continue };
            made -= 1;
            shared.queue().fail(*index, why.to_string());
        }
    }
    shared.idle().replace(remote);
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_as_much_to_hash_as_it_may() {
        for (sizes, count) in [
            (&[1, MAX_HASHED - 1, 1][..], 2),
            (&[MAX_HASHED + 1, 1], 1),
            (&[1, u64::MAX, 1], 1),
            (&[0, 0], 2),
        ] {
            assert_eq!(hashed_at_once(sizes.iter().copied()), count, "{sizes:?}");
        }
    }
}
