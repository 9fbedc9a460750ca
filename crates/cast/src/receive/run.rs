//! A reception from its description to its name in the inbox.

use super::{
    conduct::{Conductor, Told},
    finish,
    home::Home,
    reception::{Reception, State, geometry},
};
use crate::{
    disk::{self, ObjectFiles, Place, make, may_be, may_be_part},
    leg::Desk,
    ring::Intake,
    store::{Known, Pages, Store, journal, recover},
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

/// Symbols that wait for the disk: 4 MiB of 16 KiB. When it is slower than the network the legs wait,
/// and by them the parents, each for this child alone.
const WAITING: usize = 256;

/// Symbols are synced and their arrival journaled so often: what a crash loses comes again.
const SYNC: Duration = Duration::from_secs(1);

/// Chunks that came and are not right on the disk are fetched again so often at most.
const ROUNDS: usize = 3;

/// Goes on from what is there until it has its name, or cannot; `has_room` is asked before anything is
/// made.
///
/// # Errors
/// Why it cannot; the caller sets that state.
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
    let why = "what was written is read back as something else, again and again: see to the disk";
    Err(Refusal::System(why.to_owned()))
}

/// What has the name in the inbox already, if it is the very object, by each byte of its files; `None` if nothing has
/// it, or a directory that may be part of the object. What else is in the directory stays. Modes and times become the
/// object's. Blocks that are read and right are given to others at once, because the digests of their symbols are known
/// from then on.
fn adopt(reception: &Reception) -> Result<Option<Arc<Store>>, Refusal> {
    let name = reception.offer().into_value().name;
    if !is_there(&reception.home, &name) {
        return Ok(None);
    }
    let landed = reception.home.landed(name.as_bytes()).map_err(refusal)?;
    let store = landed_store(reception, ObjectFiles::found, HaveSet::empty)?;
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
    store.files.moved(landed.clone());
    finish::seal(reception, &store, &landed).map_err(refusal)?;
    finish::prove(reception, &store, &landed).map_err(refusal)?;
    Ok(Some(store))
}

/// The object as far as it is here, in directory and files of its own.
fn open(reception: &Reception) -> Result<Arc<Store>, Refusal> {
    let offer = reception.offer().into_value();
    let geometry = geometry(&offer)?;
    let described = reception.described().clone();
    let (manifest, layout) =
        described.ok_or_else(|| Refusal::Invalid("the object is not described".to_owned()))?;
    let home = &reception.home;
    let open = || {
        home.unmark()?;
        let made = home.made(offer.name.as_bytes())?;
        make(&made, &layout)?;
        let have = journal::read(&home.journal(), &geometry)?;
        Ok((ObjectFiles::in_making(Arc::clone(&layout), made), Pages::new(home.pages()?), have))
    };
    let (files, pages, have): (ObjectFiles, Pages, HaveSet) = open().map_err(refusal)?;
    let known = Known { id: home.id, offer, geometry, manifest };
    let store = Store::new(known, files, pages, have);
    recover(&store).map_err(refusal)?;
    if store.have().count() == 0 && is_there(home, &store.known.offer.name) {
        reception.set(State::Checking(Arc::clone(&store)));
        let landed = home.landed(store.known.offer.name.as_bytes());
        landed.and_then(|landed| finish::take_over(&store, &landed)).map_err(refusal)?;
    }
    Ok(store)
}

/// One that had its name before this process; what it lacked of its modes it gets. `None`: it has to be read
/// first, as somebody may have touched it since.
///
/// # Errors
/// Why it cannot be gone on with.
pub fn reopen(reception: &Reception, now: WallTime) -> Result<Option<Arc<Store>>, Refusal> {
    let store = landed_store(reception, ObjectFiles::present, HaveSet::all)?;
    let offer = reception.offer().into_value();
    let landed = reception.home.landed(offer.name.as_bytes()).map_err(refusal)?;
    let is_asked_for = offer.expiry > now && is_there(&reception.home, &offer.name);
    if is_asked_for && !finish::is_proven(reception, &landed, store.files.layout()) {
        return Ok(None);
    }
    if !reception.home.is_marked_done() {
        finish::seal(reception, &store, &landed).map_err(refusal)?;
    }
    Ok(Some(store))
}

fn is_there(home: &Home, name: &FilePath) -> bool {
    home.inbox.join(OsStr::from_bytes(name.as_bytes())).symlink_metadata().is_ok()
}

fn landed_store(
    reception: &Reception,
    files: impl FnOnce(Arc<Layout>, Place) -> ObjectFiles,
    have: impl FnOnce(&Geometry) -> HaveSet,
) -> Result<Arc<Store>, Refusal> {
    let offer = reception.offer().into_value();
    let geometry = geometry(&offer)?;
    let described = reception.described().clone();
    let (manifest, layout) =
        described.ok_or_else(|| Refusal::Invalid("the object is not described".to_owned()))?;
    let landed = reception.home.landed(offer.name.as_bytes()).map_err(refusal)?;
    let files = files(layout, landed);
    let pages = Pages::new(reception.home.pages().map_err(refusal)?);
    let known = Known { id: reception.home.id, offer, geometry, manifest };
    Ok(Store::new(known, files, pages, have(&geometry)))
}

/// The system's answer as it is told to the source.
pub fn refusal(why: io::Error) -> Refusal {
    let what = match why.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; what came is kept: make room there, and cast again"
        }
        _ => "",
    };
    Refusal::System(format!("{why}{what}"))
}

/// Pulls all that is missing.
async fn fetch(
    reception: &Arc<Reception>,
    store: &Arc<Store>,
    conductor: &Conductor,
) -> Result<(), Refusal> {
    if store.have().is_complete() {
        return Ok(());
    }
    let seed = seed(reception);
    let desk = Arc::new(Desk::new(store.known.geometry, store.have().clone(), seed));
    let (disk, arrivals) = mpsc::channel(WAITING);
    let node = reception.ring(store).map_err(refusal)?;
    let (path, solved) = (reception.home.path(), Arc::clone(&reception.solved));
    let intake = Intake::new(store, Arc::clone(&desk), &path, solved);
    let intake = intake.map_err(refusal)?;
    let mut writing = tokio::spawn(Arc::clone(&intake).run(arrivals));
    let told = Told { reception, store, desk, disk, node, intake };
    tokio::select! {
        () = conductor.conduct(told) => {}
        wrong = keep_journal(reception, store) => return Err(wrong),
        written = &mut writing => return Err(ended(written)),
    }
    // All legs are gone, and with them all senders.
    match writing.await {
        Ok(Ok(())) => Ok(()),
        other => Err(ended(other)),
    }
}

/// Another one for each receiver: the pass names it.
fn seed(reception: &Reception) -> u64 {
    let hash = blake3::hash(&reception.pass());
    hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn ended(written: Result<io::Result<()>, tokio::task::JoinError>) -> Refusal {
    match written {
        Ok(Err(why)) => refusal(why),
        Ok(Ok(())) => Refusal::System("the disk's thread ended early".to_owned()),
        Err(why) => Refusal::System(why.to_string()),
    }
}

/// For ever: syncs what came, then says in the journal that it did.
async fn keep_journal(reception: &Arc<Reception>, store: &Arc<Store>) -> Refusal {
    let mut ticks = interval(SYNC);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut news = store.news();
    news.mark_unchanged();
    loop {
        ticks.tick().await;
        if !news.has_changed().unwrap_or(false) {
            continue;
        }
        news.mark_unchanged();
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
    // What came before the sync is on the disk after it.
    let runs: Vec<_> = store.have().runs().collect();
    store.files.sync()?;
    journal::write(file, &runs)
}
