//! Each source's data over connections of its own to this host, all at once: needs no rates.

use super::{
    Errand, Event, FileNo, Inventory, LandError, Piece, Remote, RemoteError, Work,
    remote::{ReachError, ToLand},
};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use thalweg_wire::object::ReadRequest;
use tokio::{task::JoinSet, time::sleep};

/// Bytes of one request: a large file's are given back in parts of this size if they fail.
const REQUEST: u64 = 4 << 20;

/// Files of one request: more would make it longer than allowed.
const FILES: usize = 200;

/// Requests that wait for their answer: while one comes, the next is read from the source's disk.
const AHEAD: usize = 2;

/// A source that broke off is called again so often in a row, without a byte in between.
const TRIES: u32 = 4;

/// Before the first of them; doubled before each other.
const PAUSE: Duration = Duration::from_millis(500);

/// The collection; sources that failed, with why.
///
/// # Errors
///
/// [`LandError::All`]: nothing more can be kept.
pub async fn run(errand: &Errand, connections: u32) -> Result<Vec<(u32, String)>, LandError> {
    let work = Arc::new(Mutex::new(Work::new(&errand.inventory)));
    let mut workers = JoinSet::new();
    for source in 0..errand.overlay.sources as u32 {
        for _ in 0..connections.max(1) {
            let (errand, work) = (errand.clone(), work.clone());
            workers.spawn(async move { (source, Worker { errand, work, source }.run().await) });
        }
    }
    let mut failed: Vec<(u32, String)> = Vec::new();
    while let Some(ended) = workers.join_next().await {
        match ended {
            Ok((_, Ok(()))) => {}
            Ok((_, Err(Fault::Land(all)))) => return Err(all),
            Ok((source, Err(Fault::Source(why)))) => {
                // The others of this source may do what one could not.
                let left = lock(&work).remaining(source) > 0;
                failed.retain(|(other, _)| *other != source);
                left.then(|| failed.push((source, why)));
            }
            // A panic was printed; the file count tells what is missing.
            Err(_) => {}
        }
    }
    failed.retain(|(source, _)| lock(&work).remaining(*source) > 0);
    for (source, why) in &failed {
        let source = errand.overlay.names[*source as usize].clone();
        errand.events.event(Event::SourceFailed { source, why: why.clone() });
    }
    Ok(failed)
}

/// Why a worker ends early.
enum Fault {
    /// Its source is out of reach.
    Source(String),
    /// Nothing more can be kept.
    Land(LandError),
}

struct Worker {
    errand: Errand,
    work: Arc<Mutex<Work>>,
    source: u32,
}

impl Worker {
    async fn run(&self) -> Result<(), Fault> {
        tokio::select! {
            biased;
            () = self.errand.stop.cancelled() => Ok(()),
            ended = self.fetch() => ended,
        }
    }

    /// Until nothing of the source waits, or it cannot be reached any more.
    async fn fetch(&self) -> Result<(), Fault> {
        let (mut tries, mut pause) = (TRIES, PAUSE);
        while lock(&self.work).waiting(self.source) > 0 {
            let before = lock(&self.work).remaining(self.source);
            let why = match self.session().await {
                Ok(()) => continue,
                Err(End::Land(all)) => return Err(Fault::Land(all)),
                Err(End::Lost(why)) => why,
            };
            if lock(&self.work).remaining(self.source) < before {
                (tries, pause) = (TRIES, PAUSE);
            }
            tries -= 1;
            if tries == 0 {
                return Err(Fault::Source(why));
            }
            sleep(pause).await;
            pause *= 2;
        }
        Ok(())
    }

    /// One connection's work. What was asked for and did not come waits again.
    async fn session(&self) -> Result<(), End> {
        let node = &self.errand.overlay.names[self.source as usize];
        let mut remote = self.errand.reach.open(node, &[]).await?;
        let mut asked: VecDeque<Vec<Piece>> = VecDeque::new();
        let ended = self.requests(&mut remote, &mut asked).await;
        asked.into_iter().flatten().for_each(|piece| lock(&self.work).give_back(piece));
        if ended.is_ok() {
            remote.close().await;
        }
        ended
    }

    async fn requests(
        &self,
        remote: &mut Remote,
        asked: &mut VecDeque<Vec<Piece>>,
    ) -> Result<(), End> {
        loop {
            while asked.len() < AHEAD {
                let pieces = take(&mut lock(&self.work), self.source);
                if pieces.is_empty() {
                    break;
                }
                let request = request(&self.errand.inventory, &pieces);
                asked.push_back(pieces);
                remote.ask(&request).await?;
            }
            let Some(pieces) = asked.front() else { return Ok(()) };
            let files: Vec<FileNo> = pieces.iter().map(|piece| piece.file).collect();
            let starts: Vec<u64> = pieces.iter().map(|piece| piece.range.start).collect();
            let mut sink = ToLand::new(&self.errand.land, &files);
            let results = remote.receive_all(&starts, &mut sink).await?;
            let pieces = asked.pop_front().unwrap_or_default();
            let results = results.into_iter().map(|result| result.err());
            pieces.into_iter().zip(results).for_each(|(piece, result)| self.settle(piece, result));
        }
    }

    fn settle(&self, piece: Piece, failed: Option<RemoteError>) {
        let mut work = lock(&self.work);
        let Some(why) = failed else { return work.done(&piece) };
        let is_final = why.is_final() || matches!(why, RemoteError::Land(LandError::File { .. }));
        if !is_final {
            return work.give_back(piece);
        }
        work.forget(piece.file);
        work.done(&piece);
        drop(work);
        give_up(&self.errand, piece.file, &why);
    }
}

/// A file will not come.
pub(super) fn give_up(errand: &Errand, file: FileNo, why: &RemoteError) {
    // The landing says it at the end, with its name here.
    errand.land.give_up(file, why.to_string());
}

/// How a connection ends.
enum End {
    Lost(String),
    Land(LandError),
}

impl From<ReachError> for End {
    fn from(why: ReachError) -> Self {
        Self::Lost(why.to_string())
    }
}

impl From<RemoteError> for End {
    fn from(why: RemoteError) -> Self {
        match why {
            RemoteError::Land(why) => Self::Land(why),
            why => Self::Lost(why.to_string()),
        }
    }
}

/// Pieces for one request.
fn take(work: &mut Work, source: u32) -> Vec<Piece> {
    let mut pieces = work.take(source, REQUEST);
    // In reverse, so that they wait in their order.
    pieces.drain(FILES.min(pieces.len())..).rev().for_each(|piece| work.give_back(piece));
    pieces
}

fn request(inventory: &Inventory, pieces: &[Piece]) -> thalweg_wire::object::Request {
    let part = |piece: &Piece| {
        let file = inventory.get(piece.file)?.file.clone();
        Some(ReadRequest { file, from: piece.range.start, bytes: piece.bytes() })
    };
    thalweg_wire::object::Request::ReadParts(pieces.iter().filter_map(part).collect())
}

/// Held for a few instructions only.
fn lock(work: &Mutex<Work>) -> MutexGuard<'_, Work> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}
