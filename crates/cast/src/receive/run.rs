//! Runs a reception from its description to its name in the inbox.

use super::{
    cast_directory::CastDirectory,
    conductor::{Conductor, Session},
    finish,
    reception::{Reception, State, geometry},
};
use crate::{
    disk::{self, ObjectFiles, ObjectLocation, make, may_be, may_be_part},
    leg::SymbolScheduler,
    ring::Intake,
    store::{KnownObject, Pages, Store, journal, recover},
};
use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt as _,
    sync::Arc,
    time::{Duration, Instant},
};
use thalweg_fountain::{Geometry, HaveSet};
use thalweg_units::WallTime;
use thalweg_wire::{
    cast::{Layout, Refusal},
    object::FilePath,
};
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

/// Capacity of the queue to the disk: 4 MiB in symbols of 16 KiB. If the disk is slower than the network, the legs
/// wait; each parent then waits for this child alone.
const MAX_QUEUED: usize = 256;

/// The interval at which symbols are synced and journaled. After a crash, symbols that came since the last sync may
/// have to be sent again.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of rounds of fetching and checking; after the first, only chunks that are wrong on the disk are
/// fetched.
const ROUNDS: usize = 3;

/// Continues a reception from its stored state until the object has its name. `has_room` is called before anything is
/// created.
///
/// # Errors
/// Why the reception cannot continue; the caller sets this state.
pub async fn run(
    reception: &Arc<Reception>,
    conductor: &Conductor,
    has_room: impl FnOnce() -> Result<(), Refusal> + Send + 'static,
) -> Result<(), Refusal> {
    let adopting = Arc::clone(reception);
    let adopted = spawn_blocking(move || adopt(&adopting)).await;
    if let Some(store) = adopted.map_err(|e| Refusal::System(e.to_string()))?? {
        reception.set(State::Complete(store, 0));
        return Ok(());
    }
    let opening = Arc::clone(reception);
    let opened = spawn_blocking(move || has_room().and_then(|()| open(&opening))).await;
    let store = opened.map_err(|e| Refusal::System(e.to_string()))??;
    let began = Instant::now();
    let before = store.held_bytes();
    for _ in 0..ROUNDS {
        reception.set(State::Fetching(Arc::clone(&store)));
        fetch(reception, &store, conductor).await?;
        let micros = match store.held_bytes() > before {
            true => u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
            false => 0,
        };
        reception.set(State::Checking(Arc::clone(&store)));
        let (ending, checked) = (Arc::clone(reception), Arc::clone(&store));
        let ended = spawn_blocking(move || finish::finish(&ending, &checked)).await;
        if ended.map_err(|e| Refusal::System(e.to_string()))?? {
            reception.set(State::Complete(store, micros));
            return Ok(());
        }
    }
    let why =
        "data read back from the disk repeatedly differs from what was written; check the disk";
    Err(Refusal::System(why.to_owned()))
}

/// Adopts an existing file or directory of the object's name if every byte of the object's files is the same. Returns
/// `None` if the name does not exist, or is a directory that may be an incomplete copy. Other files in the directory
/// stay. Modes and times are set to the object's. Correct blocks can be served to others as soon as they are read,
/// because their digests are known then.
fn adopt(reception: &Reception) -> Result<Option<Arc<Store>>, Refusal> {
    let name = reception.offer().into_value().name;
    if !is_there(&reception.home, &name) {
        return Ok(None);
    }
    let landed = reception.home.final_location(name.as_bytes()).map_err(refusal)?;
    let store = landed_store(reception, ObjectFiles::unverified, HaveSet::empty)?;
    let layout = store.files.layout();
    let other = || Refusal::Exists(name.to_string());
    if !may_be(&landed, layout, &reception.home.policy) {
        let is_part = may_be_part(&landed, layout, &reception.home.policy);
        return if is_part { Ok(None) } else { Err(other()) };
    }
    reception.set(State::Checking(Arc::clone(&store)));
    if !finish::read_through(&store).unwrap_or(false) {
        return Err(other());
    }
    disk::settle(&landed, layout, &reception.home.policy).map_err(refusal)?;
    store.files.mark_present(landed.clone());
    finish::seal(reception, &store, &landed).map_err(refusal)?;
    finish::prove(reception, &store, &landed).map_err(refusal)?;
    Ok(Some(store))
}

/// Opens or creates the object's files in `made`, with the symbols that are present.
fn open(reception: &Reception) -> Result<Arc<Store>, Refusal> {
    let offer = reception.offer().into_value();
    let geometry = geometry(&offer)?;
    let described = reception.described().clone();
    let (manifest, layout) = described.ok_or_else(|| {
        Refusal::Invalid("the manifest and layout of the object are missing".to_owned())
    })?;
    let home = &reception.home;
    let open = || {
        home.unmark()?;
        let made = home.unfinished_location(offer.name.as_bytes())?;
        make(&made, &layout)?;
        let have = journal::read(&home.journal(), &geometry)?;
        Ok((ObjectFiles::in_making(Arc::clone(&layout), made), Pages::new(home.pages()?), have))
    };
    let (files, pages, have): (ObjectFiles, Pages, HaveSet) = open().map_err(refusal)?;
    let known = KnownObject { id: home.id, offer, geometry, manifest };
    let store = Store::new(known, files, pages, have);
    recover(&store).map_err(refusal)?;
    if store.have().count() == 0 && is_there(home, &store.known.offer.name) {
        reception.set(State::Checking(Arc::clone(&store)));
        let landed = home.final_location(store.known.offer.name.as_bytes());
        landed.and_then(|landed| finish::take_over(&store, &landed)).map_err(refusal)?;
    }
    Ok(store)
}

/// Reopens a cast that was complete before this process started, and sets modes that are missing. Returns `None` if the
/// files must be read first, because they may have changed.
///
/// # Errors
/// Why the cast cannot continue.
pub fn reopen(reception: &Reception, now: WallTime) -> Result<Option<Arc<Store>>, Refusal> {
    let store = landed_store(reception, ObjectFiles::present, HaveSet::all)?;
    let offer = reception.offer().into_value();
    let landed = reception.home.final_location(offer.name.as_bytes()).map_err(refusal)?;
    let is_asked_for = offer.expiry > now && is_there(&reception.home, &offer.name);
    if is_asked_for && !finish::is_proven(reception, &landed, store.files.layout()) {
        return Ok(None);
    }
    if !reception.home.is_marked_done() {
        finish::seal(reception, &store, &landed).map_err(refusal)?;
    }
    Ok(Some(store))
}

fn is_there(home: &CastDirectory, name: &FilePath) -> bool {
    home.inbox.join(OsStr::from_bytes(name.as_bytes())).symlink_metadata().is_ok()
}

fn landed_store(
    reception: &Reception,
    files: impl FnOnce(Arc<Layout>, ObjectLocation) -> ObjectFiles,
    have: impl FnOnce(&Geometry) -> HaveSet,
) -> Result<Arc<Store>, Refusal> {
    let offer = reception.offer().into_value();
    let geometry = geometry(&offer)?;
    let described = reception.described().clone();
    let (manifest, layout) = described.ok_or_else(|| {
        Refusal::Invalid("the manifest and layout of the object are missing".to_owned())
    })?;
    let landed = reception.home.final_location(offer.name.as_bytes()).map_err(refusal)?;
    let files = files(layout, landed);
    let pages = Pages::new(reception.home.pages().map_err(refusal)?);
    let known = KnownObject { id: reception.home.id, offer, geometry, manifest };
    Ok(Store::new(known, files, pages, have(&geometry)))
}

/// An I/O error as a refusal for the source.
pub fn refusal(why: io::Error) -> Refusal {
    let what = match why.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; received data is kept: free some space there and run the same command again"
        }
        _ => "",
    };
    Refusal::System(format!("{why}{what}"))
}

/// Receives all missing symbols.
async fn fetch(
    reception: &Arc<Reception>,
    store: &Arc<Store>,
    conductor: &Conductor,
) -> Result<(), Refusal> {
    if store.have().is_complete() {
        return Ok(());
    }
    let seed = seed(reception);
    let scheduler =
        Arc::new(SymbolScheduler::new(store.known.geometry, store.have().clone(), seed));
    let (disk, arrivals) = mpsc::channel(MAX_QUEUED);
    let node = reception.ring(store).map_err(refusal)?;
    let (path, solved) = (reception.home.path(), Arc::clone(&reception.solved));
    let intake = Intake::new(store, Arc::clone(&scheduler), &path, solved);
    let intake = intake.map_err(refusal)?;
    let mut writing = tokio::spawn(Arc::clone(&intake).run(arrivals));
    let session = Session { reception, store, scheduler, disk, node, intake };
    tokio::select! {
        () = conductor.conduct(session) => {}
        wrong = keep_journal(reception, store) => return Err(wrong),
        written = &mut writing => return Err(ended(written)),
    }
    // All legs have ended, and with them all senders.
    match writing.await {
        Ok(Ok(())) => Ok(()),
        other => Err(ended(other)),
    }
}

/// A seed that differs between receivers, because each pass names its receiver.
fn seed(reception: &Reception) -> u64 {
    let hash = blake3::hash(&reception.pass());
    hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn ended(written: Result<io::Result<()>, tokio::task::JoinError>) -> Refusal {
    match written {
        Ok(Err(why)) => refusal(why),
        Ok(Ok(())) => Refusal::System("the disk writer ended unexpectedly".to_owned()),
        Err(why) => Refusal::System(why.to_string()),
    }
}

/// Runs forever: syncs received symbols, then writes the journal.
async fn keep_journal(reception: &Arc<Reception>, store: &Arc<Store>) -> Refusal {
    let mut ticks = interval(SYNC_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changes = store.changes();
    changes.mark_unchanged();
    loop {
        ticks.tick().await;
        if !changes.has_changed().unwrap_or(false) {
            continue;
        }
        changes.mark_unchanged();
        let (store, journal) = (Arc::clone(store), reception.home.journal());
        let kept = spawn_blocking(move || keep(&store, &journal)).await;
        match kept {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return refusal(why),
            Err(why) => return Refusal::System(why.to_string()),
        }
    }
}

fn keep(store: &Store, file: &std::path::Path) -> io::Result<()> {
    // Read before the sync: these symbols are on disk after it.
    let runs: Vec<_> = store.have().runs().collect();
    store.files.sync()?;
    journal::write(file, &runs)
}
