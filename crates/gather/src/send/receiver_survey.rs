//! Asks the receiver, before anything moves, which items it has and which it would refuse.

use super::{ExistingCounts, SendError, SendState, local::LocalItem, path::gaps};
use std::{collections::VecDeque, ops::Range, time::Duration};
use thalweg_files::remote::{DELIVERIES_AHEAD, Remote, RemoteError};
use thalweg_part::Ranges;
use thalweg_wire::object::{
    Delivery, DescribedEntry, Entry, Failure, Kind, MAX_DELIVERED, MAX_HASHED, Owners, PathState,
    Rules, TransferHash,
};
use tokio::{task::spawn_blocking, time::timeout};

/// The maximum size of files sent whole, many per request, bytes. The receiver keeps no parts of such files.
const SMALL: u64 = 256 << 10;

/// The maximum number of bytes in a request that describe entries.
const MOST_SAID: usize = 700 << 10;

/// The bytes of an entry besides its path and target: numbers, times and a hash.
const BESIDE: usize = 128;

/// The number of files that an old node is asked about ahead of its answers.
const ASKED: usize = 256;

/// The limitations of an old node, for messages.
const OLD: &str = "it runs an older version, which accepts only files, one after the other: \
                   links, empty directories, and modes and times of directories are not sent";

/// The state of the receiver.
#[derive(Debug, Default)]
pub(super) struct ReceiverState {
    pub present: ExistingCounts,
    /// Directories to create, by their indices.
    pub directories: Vec<usize>,
    /// Existing files whose mode or time must change.
    pub undressed: Vec<usize>,
    /// The number of existing directories whose mode or time must change.
    pub undressed_directories: u64,
    /// Free bytes and free files (inodes) at the receiver.
    pub room: Option<(u64, u64)>,
    /// The rules that the node does not follow, and why.
    pub declined: Option<(Rules, Failure)>,
}

/// The bytes of a request that describe an entry.
pub(super) fn cost(entry: &Entry) -> usize {
    let target = match &entry.kind {
        Kind::Symlink { target } => target.len(),
        _ => 0,
    };
    let more = entry.more.as_ref().map_or(0, |more| more.memory());
    BESIDE + entry.path.as_bytes().len() + target + more
}

/// Asks the receiver, and queues the missing data.
///
/// # Errors
/// Returns [`SendError`] if the receiver cannot be reached, or accepts nothing.
pub(super) async fn survey(shared: &SendState) -> Result<ReceiverState, SendError> {
    // Outside the `match`, so that no lock is held while the connection is opened.
    let idle = shared.idle().take();
    let mut remote = match idle {
        Some(remote) => remote,
        None => open(shared).await?,
    };
    let mut survey = ReceiverState::default();
    let all: Vec<usize> = (0..shared.items.len()).collect();
    let alike = match compare(shared, &mut remote, &mut survey, &all, None).await {
        Err(SurveyError::Old) => return survey_old_node(shared).await,
        looked => looked?,
    };
    compare_content(shared, &mut remote, &mut survey, &alike).await?;
    shared.idle().replace(remote);
    Ok(survey)
}

/// Asks, with hashes, about files whose content must be compared.
async fn compare_content(
    shared: &SendState,
    remote: &mut Remote,
    survey: &mut ReceiverState,
    mut alike: &[usize],
) -> Result<(), SendError> {
    while !alike.is_empty() {
        let (these, others) = alike.split_at(alike.len().min(MAX_DELIVERED));
        let (these, checks) = digests(shared, these).await;
        compare(shared, remote, survey, &these, Some(checks)).await?;
        alike = others;
    }
    Ok(())
}

/// Asks again about files that are sent in parts, and queues missing data. Smaller files are only confirmed once they
/// are on the disk.
///
/// # Errors
/// [`SendError::Unreached`].
pub(super) async fn ask_again(shared: &SendState) -> Result<(), SendError> {
    if shared.is_old() {
        return survey_old_node(shared).await.map(drop);
    }
    let mut remote = open(shared).await?;
    let in_parts: Vec<usize> = {
        let queue = shared.queue();
        let all = 0..shared.items.len();
        all.filter(|index| shared.items[*index].is_file() && shared.items[*index].size() > SMALL)
            .filter(|index| !queue.failed().contains_key(index))
            .collect()
    };
    let mut survey = ReceiverState::default();
    let alike = compare(shared, &mut remote, &mut survey, &in_parts, None).await?;
    compare_content(shared, &mut remote, &mut survey, &alike).await?;
    shared.idle().replace(remote);
    Ok(())
}

/// Opens a connection for requests.
///
/// # Errors
/// [`SendError::Unreached`].
pub(super) async fn open(shared: &SendState) -> Result<Remote, SendError> {
    let opened = Remote::open(&shared.dialer, &shared.request.node, &[]).await;
    opened.map_err(|e| SendError::Unreached(e.to_string()))
}

/// The receiver could not be asked.
enum SurveyError {
    /// It did not answer at all, perhaps because it does not know the request.
    Old,
    Failed(SendError),
}

impl From<SurveyError> for SendError {
    fn from(why: SurveyError) -> Self {
        match why {
            SurveyError::Old => {
                Self::Unreached("the node closed the connection without an answer".to_owned())
            }
            SurveyError::Failed(why) => why,
        }
    }
}

/// Asks about some items, with hashes of all of them or none. Returns those whose content must be compared.
async fn compare(
    shared: &SendState,
    remote: &mut Remote,
    survey: &mut ReceiverState,
    all: &[usize],
    checks: Option<Vec<TransferHash>>,
) -> Result<Vec<usize>, SurveyError> {
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
            sent.map_err(|why| survey_error(shared, why, is_first))?;
            asked.push_back(these);
            rest = others;
        }
        let Some(these) = asked.pop_front() else { break };
        let compared = remote.receive_comparison(these.len()).await;
        let compared = compared.map_err(|why| survey_error(shared, why, is_first))?;
        is_first = false;
        survey.room = compared.room;
        survey.declined = compared.declined.or(survey.declined.take());
        for (index, found) in these.iter().zip(compared.found) {
            let why = |number: u8| compared.reasons[usize::from(number)].to_string();
            match found {
                PathState::SameSizeAndTime => alike.push(*index),
                PathState::Refused(number) => shared.queue().fail(*index, why(number)),
                found => survey.note(shared, *index, found),
            }
        }
    }
    Ok(alike)
}

/// Splits items into requests of bounded size.
pub(super) fn chunks<'a>(
    items: &'a [LocalItem],
    mut these: &'a [usize],
) -> impl Iterator<Item = &'a [usize]> {
    std::iter::from_fn(move || {
        let (first, rest) = these.split_at(these.len().min(some(items, these)));
        these = rest;
        (!first.is_empty()).then_some(first)
    })
}

/// The number of these items that fit into one request.
fn some(items: &[LocalItem], these: &[usize]) -> usize {
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

fn survey_error(shared: &SendState, why: RemoteError, is_first: bool) -> SurveyError {
    SurveyError::Failed(match why {
        RemoteError::Refused { why: Failure::NotOffered(_), .. } => shared.not_accepted(),
        RemoteError::Lost { .. } if is_first => return SurveyError::Old,
        why => SendError::Unreached(why.to_string()),
    })
}

impl ReceiverState {
    /// The number of existing files and directories whose attributes will change.
    pub fn attributes(&self) -> u64 {
        self.undressed.len() as u64 + self.undressed_directories
    }

    fn note(&mut self, shared: &SendState, index: usize, found: PathState) {
        let item = &shared.items[index];
        let size = item.size();
        match found {
            PathState::Same if item.is_directory() => {}
            PathState::MetadataDiffers if item.is_directory() => self.undressed_directories += 1,
            PathState::Same if item.is_link() => self.present.links += 1,
            PathState::Same | PathState::MetadataDiffers => {
                self.present.files += 1;
                self.present.bytes += size;
                if found == PathState::MetadataDiffers {
                    self.undressed.push(index);
                }
            }
            _ if item.is_directory() => self.directories.push(index),
            _ if size <= SMALL => {
                shared.queue().add_whole(index, size, cost(&item.entry) as u32);
            }
            PathState::Part(held) => self.queue_missing(shared, index, &held),
            _ => self.queue_missing(shared, index, &[]),
        }
    }

    /// Queues the ranges of a large file that the node does not hold, except holes. Ranges that the node reports are
    /// validated.
    fn queue_missing(&mut self, shared: &SendState, index: usize, held: &[(u64, u64)]) {
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

/// Hashes files; those that cannot be read are marked as failed.
async fn digests(shared: &SendState, these: &[usize]) -> (Vec<usize>, Vec<TransferHash>) {
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

/// Asks an old node file by file; it supports nothing else.
async fn survey_old_node(shared: &SendState) -> Result<ReceiverState, SendError> {
    let mut remote = open(shared).await?;
    let files: Vec<usize> =
        (0..shared.items.len()).filter(|index| shared.items[*index].is_file()).collect();
    let (mut present, mut asked, mut is_first) = (ExistingCounts::default(), 0, true);
    for (at, index) in files.iter().enumerate() {
        for ahead in files.iter().take(at + ASKED).skip(asked) {
            let sent = remote.ask_held(&shared.request.into, &shared.items[*ahead].entry).await;
            sent.map_err(|why| SendError::Unreached(why.to_string()))?;
            asked += 1;
        }
        match remote.receive_held().await {
            Ok(held) => record_held(shared, *index, &held, &mut present),
            Err(RemoteError::Refused { why: Failure::NotOffered(_), .. }) => {
                return Err(shared.not_accepted());
            }
            Err(why @ RemoteError::Refused { .. }) => shared.queue().fail(*index, why.to_string()),
            Err(why) => return Err(SendError::Unreached(why.to_string())),
        }
        if std::mem::take(&mut is_first) {
            shared.record_old_node(OLD)?;
        }
    }
    shared.record_old_node(OLD)?;
    _ = timeout(Duration::from_secs(1), remote.close()).await;
    Ok(ReceiverState { present, ..ReceiverState::default() })
}

fn record_held(
    shared: &SendState,
    index: usize,
    held: &[Range<u64>],
    present: &mut ExistingCounts,
) {
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

/// Whether the target is the name of a single file, rather than a directory to put it into.
///
/// # Errors
/// [`SendError`].
pub(super) async fn is_name(shared: &SendState, remote: &mut Remote) -> Result<bool, SendError> {
    let entry = super::directory_itself();
    let delivery = Delivery {
        into: shared.request.into.clone(),
        rules: shared.rules,
        entries: vec![DescribedEntry(entry)],
        owners: Owners::default(),
    };
    let asked = remote.ask_compare(delivery, Vec::new()).await;
    asked.map_err(|why| SendError::Unreached(why.to_string()))?;
    match remote.receive_comparison(1).await {
        Ok(compared) => Ok(match compared.found[..] {
            // An item that is not a directory exists there.
            [PathState::Refused(_)] => true,
            [PathState::Nothing] => shared.request.looks_like_a_name(),
            _ => false,
        }),
        Err(RemoteError::Refused { .. }) => Ok(false),
        // An old node: later requests use the form that it understands.
        Err(_) => Ok(false),
    }
}

/// Creates the missing directories.
///
/// # Errors
/// [`SendError::Unreached`].
pub(super) async fn make_directories(
    shared: &SendState,
    survey: &ReceiverState,
) -> Result<u64, SendError> {
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
        let undone = remote.receive_delivery_result().await;
        let undone = undone.map_err(|why| SendError::Unreached(why.to_string()))?;
        made += these.len() as u64;
        for (number, why) in undone.failures() {
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
    fn one_request_has_a_bounded_amount_to_hash() {
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
