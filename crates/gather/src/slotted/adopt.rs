//! What participants hold and no path of this schedule brings: of an earlier session that was cut off,
//! and what was left behind when somebody on its path broke off.
//!
//! Participants are asked what they hold of an earlier session; its owner's notes say what that is
//! ([`super::marks`]). It is taken from them while the schedule brings the rest, held against the source's word of
//! now ([`super::recheck`]): nothing of it leaves its source again.

use super::{
    TransferTime,
    blame::Suspect,
    entry::{Awaited, Entry},
    marks::{self, FileMark, Mark},
    scene::{Scene, TIDY},
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

/// A node that does not say within so long what it holds is not waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A node that is started again is there within so long; and so long its data is not fetched anew, while
/// other data is.
const RESTART: Duration = Duration::from_secs(10);

/// Between two attempts to reach it.
const PAUSE: Duration = Duration::from_millis(250);

/// Bytes of one node's notes: of 700,000 parts. What is beyond it is sent again.
const NOTES: usize = 16 << 20;

/// What a participant holds: numbers, and the parts as its notes say them.
type Held = Vec<(u64, Vec<Mark>)>;

/// Asks all participants; what is wanted of their entries is taken out of what waits, and entries of which
/// nothing is wanted are dropped.
pub async fn find(scene: &Arc<Scene>) -> Vec<Entry> {
    let mut asking = JoinSet::new();
    for node in 0..scene.errand.overlay.destination() {
        let scene = scene.clone();
        asking.spawn(async move { (node, held(&scene, node).await) });
    }
    let mut all: Vec<(u32, Held)> = asking.join_all().await;
    all.retain(|(_, held)| !held.is_empty());
    if all.is_empty() {
        return Vec::new();
    }
    all.sort_unstable_by_key(|(node, _)| *node);
    let files = files(scene, &all).await;
    let found: Vec<Found> = all
        .into_iter()
        .flat_map(|(node, held)| held.into_iter().map(move |(number, marks)| (node, number, marks)))
        .map(|(node, number, marks)| Found::new(scene, &files, (node, number), &marks))
        .collect();
    claim(scene, found)
}

/// Takes these entries, one of each holder at a time. What does not come waits again.
///
/// # Errors
/// [`LandError::All`].
pub async fn take(scene: &Arc<Scene>, entries: Vec<Entry>) -> Result<(), LandError> {
    let mut by_holder: BTreeMap<u32, Vec<Entry>> = BTreeMap::new();
    for entry in entries {
        by_holder.entry(entry.holder).or_default().push(entry);
    }
    let mut taking = JoinSet::new();
    for entries in by_holder.into_values() {
        let scene = scene.clone();
        taking.spawn(async move {
            for entry in entries {
                one(&scene, entry).await?;
            }
            Ok(())
        });
    }
    while let Some(ended) = taking.join_next().await {
        // A panic was printed; its pieces are never done, and are reported.
        if let Ok(ended) = ended {
            ended?;
        }
    }
    Ok(())
}

/// What the schedule left where it was, as its holder broke off or a later one did: it is taken from there, if
/// the holder is there again before [`RESTART`] is over. Else it waits again.
///
/// # Errors
/// [`LandError::All`].
pub async fn take_stranded(scene: &Arc<Scene>) -> Result<(), LandError> {
    let until = Instant::now() + RESTART;
    let mut left = scene.stranded();
    while !left.is_empty() {
        let there = there(scene, left.iter().map(|entry| entry.holder).collect()).await;
        let ready = left.extract_if(.., |entry| there.contains(&entry.holder)).collect();
        take(scene, ready).await?;
        // Who breaks off again is one of those that are not there.
        left.extend(scene.stranded());
        if Instant::now() >= until {
            left.drain(..).for_each(|entry| let_go(scene, entry));
        } else if !left.is_empty() {
            sleep(PAUSE).await;
        }
    }
    Ok(())
}

/// Which of these nodes answer. What failed of them before may have been their restart.
async fn there(scene: &Arc<Scene>, nodes: BTreeSet<u32>) -> BTreeSet<u32> {
    let mut asking = JoinSet::new();
    for node in nodes {
        let scene = scene.clone();
        asking.spawn(async move {
            let hello = Request::Drop(Vec::new());
            let answered = timeout(TIDY, scene.ask(node, &hello)).await;
            matches!(answered, Ok(Ok(_))).then_some(node)
        });
    }
    let there: BTreeSet<u32> = asking.join_all().await.into_iter().flatten().collect();
    there.iter().for_each(|node| scene.works(Suspect::Node(*node)));
    there
}

/// Nothing is taken from there any more.
fn let_go(scene: &Arc<Scene>, entry: Entry) {
    scene.drop_at(entry.holder, entry.id);
    scene.give_back(entry.wanted());
}

async fn one(scene: &Arc<Scene>, entry: Entry) -> Result<(), LandError> {
    let (holder, here) = (entry.holder, scene.errand.overlay.destination());
    if scene.avoids_way(entry.source, &[entry.source, holder, here]) {
        let_go(scene, entry);
        return Ok(());
    }
    let began = Instant::now();
    let moved = deliver(scene, entry).await?;
    scene.ended(TransferTime {
        path: None,
        from: holder,
        to: here,
        began: began.saturating_duration_since(scene.began),
        took: began.elapsed(),
        moving: moved.moving,
        bytes: moved.bytes,
        failed: moved.failed,
    });
    Ok(())
}

/// All that a participant holds, as far as it says so in time; its answers go up.
async fn held(scene: &Scene, node: u32) -> Held {
    let (mut all, mut after, mut notes) = (Vec::new(), None, 0);
    while notes < NOTES {
        let request = Request::Holdings { job: scene.job(), after };
        let reply = timeout(PATIENCE, scene.ask(node, &request)).await;
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

/// The files that marks name, as far as they are wanted. There may be millions: on a thread of its own.
async fn files(scene: &Arc<Scene>, all: &[(u32, Held)]) -> BTreeMap<FileMark, FileNo> {
    let entries = all.iter().flat_map(|(_, held)| held);
    let marks: BTreeSet<FileMark> =
        entries.flat_map(|(_, marks)| marks).map(|mark| mark.file).collect();
    let scene = scene.clone();
    // A panic was printed: nothing is known then.
    spawn_blocking(move || scene.marker().files(&marks)).await.unwrap_or_default()
}

/// An entry, and which of its parts are of files that are wanted.
struct Found {
    entry: Entry,
    /// Indices of parts.
    places: Vec<usize>,
    pieces: Vec<Piece>,
}

impl Found {
    fn new(
        scene: &Scene,
        files: &BTreeMap<FileMark, FileNo>,
        (holder, number): (u32, u64),
        marks: &[Mark],
    ) -> Self {
        let file = |mark: &Mark| files.get(&mark.file).copied();
        let source_of = |file: FileNo| scene.errand.inventory.get(file).map(|wanted| wanted.source);
        let source = marks.iter().find_map(file).and_then(source_of);
        let (mut places, mut pieces) = (Vec::new(), Vec::new());
        for (place, mark) in marks.iter().enumerate() {
            // All of an entry is one source's.
            let known = file(mark).filter(|file| source_of(*file) == source);
            if let (Some(file), Some(end)) = (known, mark.from.checked_add(mark.bytes)) {
                places.push(place);
                pieces.push(Piece { file, range: mark.from..end });
            }
        }
        let part = |mark: &Mark| Awaited { from: mark.from, bytes: mark.bytes, wanted: Vec::new() };
        let entry = Entry {
            source: source.unwrap_or_default(),
            holder,
            id: SpoolId { job: scene.job(), number },
            parts: marks.iter().map(part).collect(),
            held: Vec::new(),
            proof: None,
        };
        Self { entry, places, pieces }
    }
}

/// What is wanted of entries is taken out of what waits, at once: that may be millions of files.
fn claim(scene: &Arc<Scene>, mut found: Vec<Found>) -> Vec<Entry> {
    let pieces: Vec<Piece> = found.iter_mut().flat_map(|found| found.pieces.drain(..)).collect();
    let mut claimed = scene.claim(&pieces).into_iter();
    let (mut entries, mut bytes) = (Vec::new(), BTreeMap::new());
    for Found { mut entry, places, .. } in found {
        // From now on its holder is told at the end that all of it is over.
        scene.holds(entry.holder, 0);
        for (place, wanted) in places.into_iter().zip(claimed.by_ref()) {
            *bytes.entry(entry.holder).or_default() += wanted.iter().map(Piece::bytes).sum::<u64>();
            entry.parts[place].wanted = wanted;
        }
        match entry.parts.iter().any(|part| !part.wanted.is_empty()) {
            true => entries.push(entry),
            false => scene.drop_at(entry.holder, entry.id),
        }
    }
    bytes.into_iter().for_each(|(node, bytes)| tell(scene, node, bytes));
    entries
}

fn tell(scene: &Scene, node: u32, bytes: u64) {
    if bytes > 0 {
        let (name, held) = (scene.name(node), ByteSize::from_bytes(bytes));
        let text =
            format!("node {name} holds {held} of an earlier call, which are taken from there");
        scene.errand.events.event(Event::Note { text });
    }
}
