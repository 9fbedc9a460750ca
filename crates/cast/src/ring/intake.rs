//! What comes to a receiver goes to the disk, and what is missing is solved beside that.

use super::{
    spool::{OnDisk, Spool},
    up::{Lack, Up},
};
use crate::{
    leg::{Desk, child::Got},
    store::Store,
};
use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc as threads,
    },
    thread,
    time::Duration,
};
use thalweg_fountain::{
    Shared, SymbolId,
    codec::{AcceptError, Arrival, Assembly, Solve, SolveError},
};
use thalweg_wire::cast::{FRAME_HEAD, MAX_RANGES};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
};

/// Blocks of which a new parent is told at the beginning what is lacking: those that were open.
const OPEN: usize = 64;

/// What is taken at once of what waits for the disk.
const BATCH: usize = 64;

/// So long the disk's thread then lets more come: woken for each symbol it would stop a leg on the same core
/// thousands of times a second, which was a third of a receiver's time. At 10 Gbit/s twenty symbols come meanwhile.
const GATHER: Duration = Duration::from_micros(250);

/// A proven symbol on its way to the disk, behind its frame's head.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Which.
    pub id: SymbolId,
    /// Head and bytes.
    pub frame: Shared,
    /// Where it is counted if it is of no use.
    pub got: Arc<Got>,
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        self.frame.get(FRAME_HEAD..).unwrap_or_default()
    }
}

/// What the disk's thread is told, in the order in which it came.
#[derive(Debug)]
pub enum ToDisk {
    /// A proven symbol.
    Symbol(Piece),
    /// A parent asks what is lacking of a block, all that came before counted.
    Spent(u32, Arc<Up>),
    /// What is here cannot be read or written, which is no parent's fault.
    Broken(io::Error),
}

/// What is held of an object, repair symbols included.
#[derive(Debug)]
pub struct Intake {
    disk: OnDisk,
    desk: Arc<Desk>,
    assembly: Mutex<Assembly>,
    /// Parents that stream: they hear of each block that is complete.
    ups: Mutex<Vec<Weak<Up>>>,
    /// Who asked about blocks that are being solved.
    waiting: Mutex<BTreeMap<u32, Weak<Up>>>,
    solved: Arc<AtomicU64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in between leaves whole values behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Intake {
    /// Of an object that is in the making; repair symbols wait in `directory`; of blocks that are solved
    /// nothing is asked at `desk` any more, and they are counted.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(
        store: &Arc<Store>,
        desk: Arc<Desk>,
        directory: &Path,
        solved: Arc<AtomicU64>,
    ) -> io::Result<Arc<Self>> {
        let geometry = store.known.geometry;
        let spool = Arc::new(Spool::within(directory, geometry.symbol_bytes())?);
        let assembly = Assembly::resume(geometry, store.have().clone(), []);
        Ok(Arc::new(Self {
            disk: OnDisk { store: Arc::clone(store), spool },
            desk,
            assembly: Mutex::new(assembly),
            ups: Mutex::default(),
            waiting: Mutex::default(),
            solved,
        }))
    }

    /// A parent that streams from now on, with what is to be said to it first.
    pub fn attach(&self) -> Arc<Up> {
        let up = Arc::new(Up::default());
        let assembly = lock(&self.assembly);
        let mut open = 0;
        for block in 0..assembly.geometry().blocks() {
            if assembly.have().holds_block(block) {
                up.done(block);
            } else if assembly.lacks(block) < assembly.geometry().source_symbols_of(block)
                && open < OPEN
            {
                open += 1;
                up.lack(block, &lack(&assembly, block));
            }
        }
        let mut ups = lock(&self.ups);
        ups.retain(|up| up.strong_count() > 0);
        ups.push(Arc::downgrade(&up));
        up
    }

    /// Writes what comes until nothing more can come; solves beside it. Ends with the disk's error.
    ///
    /// # Errors
    /// I/O errors of the disk.
    pub async fn run(self: Arc<Self>, arrivals: mpsc::Receiver<ToDisk>) -> io::Result<()> {
        // One that waits to be looked at stands for all.
        let (solves, jobs) = threads::sync_channel(1);
        let (writer, solver) = (Arc::clone(&self), Arc::clone(&self));
        let writing = spawn_blocking(move || writer.write(arrivals, &solves));
        let solving = spawn_blocking(move || {
            let mut looks = jobs.into_iter();
            looks.try_for_each(|()| solver.solve_all())
        });
        tokio::try_join!(ended(writing), ended(solving)).map(drop)
    }

    fn write(
        &self,
        mut arrivals: mpsc::Receiver<ToDisk>,
        solves: &threads::SyncSender<()>,
    ) -> io::Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let came = arrivals.blocking_recv_many(&mut batch, BATCH);
            if came == 0 {
                return Ok(());
            }
            for told in batch.drain(..) {
                match told {
                    ToDisk::Symbol(piece) => self.take(&piece, solves)?,
                    ToDisk::Spent(block, up) => self.answer(block, &up),
                    ToDisk::Broken(why) => return Err(why),
                }
            }
            if came < BATCH {
                thread::sleep(GATHER);
            }
        }
    }

    fn take(&self, piece: &Piece, solves: &threads::SyncSender<()>) -> io::Result<()> {
        let arrival = lock(&self.assembly).accept(piece.id, piece.bytes(), &mut self.disk.clone());
        match arrival {
            Ok(Arrival::Fresh) => {}
            Ok(Arrival::Duplicate | Arrival::Unneeded) => {
                piece.got.beyond.fetch_add(piece.bytes().len() as u64, Relaxed);
            }
            Ok(Arrival::Complete) => self.complete(piece.id.block),
            // With the solver gone there is an error to be told.
            Ok(Arrival::Ready) => _ = solves.try_send(()),
            Err(AcceptError::Store(why)) => return Err(why),
            Err(wrong) => return Err(io::Error::other(wrong.to_string())),
        }
        Ok(())
    }

    fn complete(&self, block: u32) {
        lock(&self.waiting).remove(&block);
        lock(&self.ups).iter().filter_map(Weak::upgrade).for_each(|up| up.done(block));
    }

    /// Says what is lacking; of a block that is being solved once that is over.
    fn answer(&self, block: u32, up: &Arc<Up>) {
        let assembly = lock(&self.assembly);
        if assembly.have().holds_block(block) {
            return up.done(block);
        }
        let lack = lack(&assembly, block);
        if lack.need == 0 {
            lock(&self.waiting).insert(block, Arc::downgrade(up));
        } else {
            drop(assembly);
            up.lack(block, &lack);
        }
    }

    fn solve_all(&self) -> io::Result<()> {
        loop {
            let next = lock(&self.assembly).ready().next();
            match next {
                Some(block) => self.solve(block)?,
                None => return Ok(()),
            }
        }
    }

    /// Solves a block that has enough, on this thread, one at a time: that bounds the memory.
    fn solve(&self, block: u32) -> io::Result<()> {
        let Some(solve) = lock(&self.assembly).solve(block) else { return Ok(()) };
        let page = self.disk.store.page(block)?;
        let found = solve.run(&mut self.disk.clone(), page.as_deref());
        if !self.note(&solve, found)? {
            let asked = lock(&self.waiting).remove(&block);
            if let Some(up) = asked.and_then(|up| up.upgrade()) {
                self.answer(block, &up);
            }
        }
        Ok(())
    }

    /// Whether the block is complete now.
    fn note(
        &self,
        solve: &Solve,
        found: Result<thalweg_fountain::codec::Outcome, SolveError<io::Error>>,
    ) -> io::Result<bool> {
        let block = solve.block();
        let mut assembly = lock(&self.assembly);
        match found {
            Ok(outcome) => {
                let is_complete = assembly.solved(solve, outcome, &mut self.disk.clone())?;
                let symbols = assembly.geometry().symbols_of(block);
                drop(assembly);
                if is_complete {
                    self.desk.obtained(symbols);
                    self.solved.fetch_add(1, Relaxed);
                    self.complete(block);
                }
                Ok(is_complete)
            }
            Err(SolveError::Store(why)) => {
                assembly.abandon(solve);
                Err(why)
            }
            // The source signed what is not: its block comes by its source symbols.
            Err(SolveError::Forged(_)) => {
                assembly.forget_repair(block);
                Ok(false)
            }
        }
    }
}

async fn ended(work: JoinHandle<io::Result<()>>) -> io::Result<()> {
    work.await.map_err(io::Error::other)?
}

fn lack(assembly: &Assembly, block: u32) -> Lack {
    let symbols = assembly.geometry().symbols_of(block);
    let missing = assembly.have().missing_from(symbols.start);
    let missing = missing.take_while(|run| run.start < symbols.end).take(MAX_RANGES);
    let runs = missing.map(|run| (run.start, run.end.min(symbols.end))).collect();
    Lack { need: assembly.lacks(block), runs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::empty;
    use thalweg_fountain::{
        Arrived,
        codec::{BlockEncoder, Plans},
    };
    use thalweg_units::Rate;

    #[tokio::test]
    async fn what_was_solved_is_not_asked_of_the_next_parent() {
        let dir = tempfile::tempdir().unwrap();
        let mut content = vec![0; 9 << 20];
        blake3::Hasher::new().update(b"solved").finalize_xof().fill(&mut content);
        let store = empty(dir.path(), &content);
        let geometry = store.known.geometry;
        let desk = Arc::new(Desk::new(geometry, store.have().clone(), 1));
        let intake = Intake::new(&store, Arc::clone(&desk), dir.path(), Arc::default()).unwrap();
        let (disk, arrivals) = mpsc::channel(64);
        let working = tokio::spawn(Arc::clone(&intake).run(arrivals));

        // All of the first block but two, and three repair symbols.
        let first = geometry.bytes_of(0);
        let first = &content[first.start as usize..first.end as usize];
        let k = geometry.source_symbols_of(0);
        let plan = Plans::new().of(k).unwrap();
        let repair = BlockEncoder::new(&geometry, 0, first, &plan).unwrap().repair(k..k + 3);
        let source = first.chunks(geometry.symbol_bytes() as usize).map(<[u8]>::to_vec);
        let all = (2..k).zip(source.skip(2)).chain((k..).zip(repair));
        for (esi, bytes) in all {
            let id = SymbolId { block: 0, esi };
            if let Some(index) = geometry.index(id) {
                desk.obtained(index..index + 1);
            }
            let frame = Arc::new([vec![0; FRAME_HEAD], bytes].concat());
            disk.send(ToDisk::Symbol(Piece { id, frame, got: Arc::default() })).await.unwrap();
        }
        drop(disk);
        working.await.unwrap().unwrap();
        assert!(store.have().holds_block(0));

        let parent = desk.join(Rate::from_mbps(1000.0), Duration::from_millis(1));
        desk.holds(parent, &[(0, geometry.symbols())]);
        let mut asked = Vec::new();
        while let asks @ [_, ..] = &desk.asks(parent)[..] {
            for &(from, to) in asks {
                asked.push(from..to);
                let arrive = |index| assert_eq!(desk.arrived(parent, index), Arrived::Fresh);
                (from..to).for_each(arrive);
            }
        }
        let first_of_all = asked.iter().map(|range| range.start).min();
        assert_eq!(first_of_all, Some(u64::from(k)), "{asked:?}");
    }
}
