//! Fetches data that participants hold and that no path of this schedule brings: data of an earlier session that was
//! killed, and data stranded when a node on its path broke off.
//!
//! Each participant is asked what it holds of an earlier session; the notes on its entries describe their parts
//! ([`super::marks`]). The data is fetched from there while the schedule brings the rest, and is verified against
//! hashes that the source computes now ([`super::recheck`]). So no data leaves its source twice.

use super::{
    TransferTime,
    entry::{AwaitedPart, SpoolEntry},
    failure_record::Suspect,
    marks::{self, FileMark, Mark},
    schedule_state::{ScheduleState, TIDY},
    verify::deliver,
};
use crate::Event;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use thalweg_files::{
    inventory::{FileNo, Piece},
    land::LandError,
};
use thalweg_units::ByteSize;
use thalweg_wire::object::{Holding, Reply, Request, SpoolId};
use tokio::{
    task::{JoinSet, spawn_blocking},
    time::{Instant, sleep, timeout},
};

/// How long to wait for a node to list what it holds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time that a restarted node needs to come back. For this long its data is not fetched anew, while other data is.
const RESTART: Duration = Duration::from_secs(10);

/// The pause between two attempts to reach it.
const PAUSE: Duration = Duration::from_millis(250);

/// The maximum size of one node's notes, bytes: enough for 700,000 parts. Data beyond that is sent again.
const NOTES: usize = 16 << 20;

/// The entries that a participant holds: their numbers, and their parts according to their notes.
type HeldEntries = Vec<(u64, Vec<Mark>)>;

/// Asks all participants. Removes the wanted data of their entries from the waiting work, and drops entries without
/// wanted data.
pub async fn find(state: &Arc<ScheduleState>) -> Vec<SpoolEntry> {
    let mut asking = JoinSet::new();
    for node in 0..state.context.overlay.destination() {
        let state = state.clone();
        asking.spawn(async move { (node, list_held(&state, node).await) });
    }
    let mut all: Vec<(u32, HeldEntries)> = asking.join_all().await;
    all.retain(|(_, held)| !held.is_empty());
    if all.is_empty() {
        return Vec::new();
    }
    all.sort_unstable_by_key(|(node, _)| *node);
    let files = files(state, &all).await;
    let found: Vec<MatchedEntry> = all
        .into_iter()
        .flat_map(|(node, held)| held.into_iter().map(move |(number, marks)| (node, number, marks)))
        .map(|(node, number, marks)| MatchedEntry::new(state, &files, (node, number), &marks))
        .collect();
    claim(state, found)
}

/// Fetches these entries, one at a time from each holder. Data that does not arrive waits again.
///
/// # Errors
/// [`LandError::All`].
pub async fn fetch(state: &Arc<ScheduleState>, entries: Vec<SpoolEntry>) -> Result<(), LandError> {
    let mut by_holder: BTreeMap<u32, Vec<SpoolEntry>> = BTreeMap::new();
    for entry in entries {
        by_holder.entry(entry.holder).or_default().push(entry);
    }
    let mut taking = JoinSet::new();
    for entries in by_holder.into_values() {
        let state = state.clone();
        taking.spawn(async move {
            for entry in entries {
                fetch_entry(&state, entry).await?;
            }
            Ok(())
        });
    }
    while let Some(ended) = taking.join_next().await {
        // A panic has already been printed. Its pieces are never marked as done, and are reported.
        if let Ok(ended) = ended {
            ended?;
        }
    }
    Ok(())
}

/// Fetches the data that the schedule stranded because its holder or a later node broke off. It is fetched from the
/// holder if that returns within [`RESTART`]; otherwise it waits again.
///
/// # Errors
/// [`LandError::All`].
pub async fn fetch_stranded(state: &Arc<ScheduleState>) -> Result<(), LandError> {
    let until = Instant::now() + RESTART;
    let mut left = state.take_stranded();
    while !left.is_empty() {
        let there = reachable_nodes(state, left.iter().map(|entry| entry.holder).collect()).await;
        let ready = left.extract_if(.., |entry| there.contains(&entry.holder)).collect();
        fetch(state, ready).await?;
        // A holder that breaks off again is offline once more.
        left.extend(state.take_stranded());
        if Instant::now() >= until {
            left.drain(..).for_each(|entry| release(state, entry));
        } else if !left.is_empty() {
            sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Returns the nodes that answer. Their earlier failures may be due to a restart, so they are cleared.
async fn reachable_nodes(state: &Arc<ScheduleState>, nodes: BTreeSet<u32>) -> BTreeSet<u32> {
    let mut asking = JoinSet::new();
    for node in nodes {
        let state = state.clone();
        asking.spawn(async move {
            let hello = Request::Drop(Vec::new());
            let answered = timeout(TIDY, state.ask(node, &hello)).await;
            matches!(answered, Ok(Ok(_))).then_some(node)
        });
    }
    let there: BTreeSet<u32> = asking.join_all().await.into_iter().flatten().collect();
    there.iter().for_each(|node| state.clear_failures(Suspect::Node(*node)));
    there
}

/// Drops an entry at its holder; its data waits again.
fn release(state: &Arc<ScheduleState>, entry: SpoolEntry) {
    state.delete_at(entry.holder, entry.id);
    state.give_back(entry.wanted());
}

async fn fetch_entry(state: &Arc<ScheduleState>, entry: SpoolEntry) -> Result<(), LandError> {
    let (holder, here) = (entry.holder, state.context.overlay.destination());
    if state.avoids_way(entry.source, &[entry.source, holder, here]) {
        release(state, entry);
        return Ok(());
    }
    let began = Instant::now();
    let moved = deliver(state, entry).await?;
    state.record_transfer(TransferTime {
        path: None,
        from: holder,
        to: here,
        began: began.saturating_duration_since(state.began),
        took: began.elapsed(),
        moving: moved.moving,
        bytes: moved.bytes,
        failed: moved.failed,
    });
    Ok(())
}

/// Lists all that a participant holds, as far as it answers in time. Numbers must ascend from page to page.
async fn list_held(state: &ScheduleState, node: u32) -> HeldEntries {
    let (mut all, mut after, mut notes) = (Vec::new(), None, 0);
    while notes < NOTES {
        let request = Request::Holdings { job: state.job(), after };
        let reply = timeout(PATIENCE, state.ask(node, &request)).await;
        let Ok(Ok(Reply::Holdings(page))) = reply else { break };
        let Some(last) = page.last().map(|holding| holding.number) else { break };
        if after.is_some_and(|after| last <= after) {
            break;
        }
        after = Some(last);
        notes +=
            page.iter().map(|holding| holding.note.len() + size_of::<Holding>()).sum::<usize>();
        all.extend(page.into_iter().map(|Holding { number, note }| (number, marks::read(&note))));
    }
    all
}

/// Finds the wanted files of these marks. There may be millions, so it runs on its own thread.
async fn files(
    state: &Arc<ScheduleState>,
    all: &[(u32, HeldEntries)],
) -> BTreeMap<FileMark, FileNo> {
    let entries = all.iter().flat_map(|(_, held)| held);
    let marks: BTreeSet<FileMark> =
        entries.flat_map(|(_, marks)| marks).map(|mark| mark.file).collect();
    let state = state.clone();
    // A panic has already been printed; no file is known then.
    spawn_blocking(move || state.marker().files(&marks)).await.unwrap_or_default()
}

/// An entry and its parts that belong to wanted files.
struct MatchedEntry {
    entry: SpoolEntry,
    /// Indices of those parts.
    places: Vec<usize>,
    pieces: Vec<Piece>,
}

impl MatchedEntry {
    fn new(
        state: &ScheduleState,
        files: &BTreeMap<FileMark, FileNo>,
        (holder, number): (u32, u64),
        marks: &[Mark],
    ) -> Self {
        let file = |mark: &Mark| files.get(&mark.file).copied();
        let source_of =
            |file: FileNo| state.context.inventory.get(file).map(|wanted| wanted.source);
        let source = marks.iter().find_map(file).and_then(source_of);
        let (mut places, mut pieces) = (Vec::new(), Vec::new());
        for (place, mark) in marks.iter().enumerate() {
            // All parts of an entry belong to one source.
            let known = file(mark).filter(|file| source_of(*file) == source);
            if let (Some(file), Some(end)) = (known, mark.from.checked_add(mark.bytes)) {
                places.push(place);
                pieces.push(Piece { file, range: mark.from..end });
            }
        }
        let part =
            |mark: &Mark| AwaitedPart { from: mark.from, bytes: mark.bytes, wanted: Vec::new() };
        let entry = SpoolEntry {
            source: source.unwrap_or_default(),
            holder,
            id: SpoolId { job: state.job(), number },
            parts: marks.iter().map(part).collect(),
            held: Vec::new(),
            proof: None,
        };
        Self { entry, places, pieces }
    }
}

/// Takes the wanted data of all entries out of the waiting work in one pass, because there may be millions of files.
fn claim(state: &Arc<ScheduleState>, mut found: Vec<MatchedEntry>) -> Vec<SpoolEntry> {
    let pieces: Vec<Piece> = found.iter_mut().flat_map(|found| found.pieces.drain(..)).collect();
    let mut claimed = state.claim(&pieces).into_iter();
    let (mut entries, mut bytes) = (Vec::new(), BTreeMap::new());
    for MatchedEntry { mut entry, places, .. } in found {
        // From now on the holder is told at the end that the job is over.
        state.record_held(entry.holder, 0);
        for (place, wanted) in places.into_iter().zip(claimed.by_ref()) {
            *bytes.entry(entry.holder).or_default() += wanted.iter().map(Piece::bytes).sum::<u64>();
            entry.parts[place].wanted = wanted;
        }
        match entry.parts.iter().any(|part| !part.wanted.is_empty()) {
            true => entries.push(entry),
            false => state.delete_at(entry.holder, entry.id),
        }
    }
    bytes.into_iter().for_each(|(node, bytes)| report_held(state, node, bytes));
    entries
}

fn report_held(state: &ScheduleState, node: u32, bytes: u64) {
    if bytes > 0 {
        let (name, held) = (state.name(node), ByteSize::from_bytes(bytes));
        let text = format!(
            "node {name} still holds {held} of an earlier call, which are fetched from there"
        );
        state.context.events.event(Event::Note { text });
    }
}
