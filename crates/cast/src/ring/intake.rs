//! A receiver's intake: writes arriving symbols to disk, and solves blocks in parallel.

use super::{
    spool::{Spool, SpooledStore},
    upstream_queue::{MissingSymbols, UpstreamQueue},
};
use crate::{
    leg::{SymbolScheduler, child::ReceivedBytes},
    store::Store,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc as threads,
    },
    thread,
    time::Duration,
};
use thalweg_fountain::{
    SharedBytes, SymbolId,
    codec::{AcceptError, AcceptOutcome, Assembly, BlockSolver, SolveError},
};
use thalweg_wire::cast::{FRAME_HEAD, MAX_RANGES};
use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
};

/// The maximum number of partly received blocks whose missing symbols are reported to a new parent.
const MAX_REPORTED_BLOCKS: usize = 64;

/// The maximum number of queued items that the disk's thread takes at once.
const BATCH: usize = 64;

/// The disk's thread pauses this long after it has emptied the queue, to gather more symbols. If it were woken for each
/// symbol, it would interrupt a leg on the same core thousands of times a second; that took a third of a receiver's
/// time. At 10 Gbit/s, twenty symbols arrive during the pause.
const GATHER: Duration = Duration::from_micros(250);

/// A verified symbol on its way to the disk, as the frame in which it arrived.
#[derive(Clone, Debug)]
pub struct ReceivedSymbol {
    pub id: SymbolId,
    /// The frame's head, then the symbol's bytes.
    pub frame: SharedBytes,
    /// Counters of the leg it came from; its bytes are added there if they are of no use.
    pub got: Arc<ReceivedBytes>,
}

impl ReceivedSymbol {
    fn bytes(&self) -> &[u8] {
        self.frame.get(FRAME_HEAD..).unwrap_or_default()
    }
}

/// Messages to the disk's thread, in order of arrival.
#[derive(Debug)]
pub enum DiskMessage {
    /// A verified symbol.
    Symbol(ReceivedSymbol),
    /// A parent asks which symbols of a block are missing, after all symbols that it sent before.
    Spent(u32, Arc<UpstreamQueue>),
    /// Local data cannot be read or written. No parent is at fault.
    Broken(io::Error),
}

/// All symbols of an object that a receiver holds, repair symbols included.
#[derive(Debug)]
pub struct Intake {
    disk: SpooledStore,
    scheduler: Arc<SymbolScheduler>,
    assembly: Mutex<Assembly>,
    /// Streaming parents, which are told about each complete block.
    upstreams: Mutex<Vec<Weak<UpstreamQueue>>>,
    /// Parents that asked about blocks which are being solved.
    waiting: Mutex<BTreeMap<u32, Weak<UpstreamQueue>>>,
    solved: Arc<AtomicU64>,
}

impl Intake {
    /// Creates the intake of an incomplete object. Repair symbols are kept in a file in `directory`. Symbols of solved
    /// blocks are not requested any more (`scheduler`), and `solved` counts these blocks.
    ///
    /// # Errors
    /// I/O errors.
    pub fn new(
        store: &Arc<Store>,
        scheduler: Arc<SymbolScheduler>,
        directory: &Path,
        solved: Arc<AtomicU64>,
    ) -> io::Result<Arc<Self>> {
        let geometry = store.known.geometry;
        let spool = Arc::new(Spool::create(directory, geometry.symbol_bytes())?);
        let assembly = Assembly::resume(geometry, store.have().clone(), []);
        Ok(Arc::new(Self {
            disk: SpooledStore { store: Arc::clone(store), spool },
            scheduler,
            assembly: Mutex::new(assembly),
            upstreams: Mutex::default(),
            waiting: Mutex::default(),
            solved,
        }))
    }

    /// Adds a streaming parent. The result contains the first messages to it: which blocks are done or partly received.
    pub fn attach(&self) -> Arc<UpstreamQueue> {
        let upstream = Arc::new(UpstreamQueue::default());
        let assembly = self.assembly.lock();
        let mut open = 0;
        for block in 0..assembly.geometry().blocks() {
            if assembly.have().holds_block(block) {
                upstream.finish(block);
            } else if assembly.lacks(block) < assembly.geometry().source_symbols_of(block)
                && open < MAX_REPORTED_BLOCKS
            {
                open += 1;
                upstream.report_missing(block, &lack(&assembly, block));
            }
        }
        let mut upstreams = self.upstreams.lock();
        upstreams.retain(|upstream| upstream.strong_count() > 0);
        upstreams.push(Arc::downgrade(&upstream));
        upstream
    }

    /// Writes symbols until all senders are dropped, and solves blocks in parallel.
    ///
    /// # Errors
    /// I/O errors of the disk.
    pub async fn run(self: Arc<Self>, arrivals: mpsc::Receiver<DiskMessage>) -> io::Result<()> {
        // Capacity 1: one pending wake-up covers all blocks that are ready.
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
        mut arrivals: mpsc::Receiver<DiskMessage>,
        solves: &threads::SyncSender<()>,
    ) -> io::Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let came = arrivals.blocking_recv_many(&mut batch, BATCH);
            if came == 0 {
                return Ok(());
            }
            for message in batch.drain(..) {
                match message {
                    DiskMessage::Symbol(piece) => self.take(&piece, solves)?,
                    DiskMessage::Spent(block, upstream) => self.answer(block, &upstream),
                    DiskMessage::Broken(why) => return Err(why),
                }
            }
            if came < BATCH {
                thread::sleep(GATHER);
            }
        }
    }

    fn take(&self, piece: &ReceivedSymbol, solves: &threads::SyncSender<()>) -> io::Result<()> {
        let arrival = self.assembly.lock().accept(piece.id, piece.bytes(), &mut self.disk.clone());
        match arrival {
            Ok(AcceptOutcome::Fresh) => {}
            Ok(AcceptOutcome::Duplicate | AcceptOutcome::Unneeded) => {
                piece.got.beyond.fetch_add(piece.bytes().len() as u64, Relaxed);
            }
            Ok(AcceptOutcome::Complete) => self.complete(piece.id.block),
            // If the solver has ended, its error is reported by `run`.
            Ok(AcceptOutcome::Ready) => _ = solves.try_send(()),
            Err(AcceptError::Store(why)) => return Err(why),
            Err(wrong) => return Err(io::Error::other(wrong.to_string())),
        }
        Ok(())
    }

    fn complete(&self, block: u32) {
        self.waiting.lock().remove(&block);
        self.upstreams
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|upstream| upstream.finish(block));
    }

    /// Tells a parent which symbols of a block are missing; if the block is being solved, after that.
    fn answer(&self, block: u32, upstream: &Arc<UpstreamQueue>) {
        let assembly = self.assembly.lock();
        if assembly.have().holds_block(block) {
            return upstream.finish(block);
        }
        let lack = lack(&assembly, block);
        if lack.need == 0 {
            self.waiting.lock().insert(block, Arc::downgrade(upstream));
        } else {
            drop(assembly);
            upstream.report_missing(block, &lack);
        }
    }

    fn solve_all(&self) -> io::Result<()> {
        loop {
            let next = self.assembly.lock().ready().next();
            match next {
                Some(block) => self.solve(block)?,
                None => return Ok(()),
            }
        }
    }

    /// Solves a block that has enough symbols. Solving one block at a time bounds the memory.
    fn solve(&self, block: u32) -> io::Result<()> {
        let Some(solve) = self.assembly.lock().solve(block) else { return Ok(()) };
        let page = self.disk.store.page(block)?;
        let found = solve.run(&mut self.disk.clone(), page.as_deref());
        if !self.note(&solve, found)? {
            let asked = self.waiting.lock().remove(&block);
            if let Some(upstream) = asked.and_then(|upstream| upstream.upgrade()) {
                self.answer(block, &upstream);
            }
        }
        Ok(())
    }

    /// Records the result of a solve. Returns whether the block is complete now.
    fn note(
        &self,
        solve: &BlockSolver,
        found: Result<thalweg_fountain::codec::SolveOutcome, SolveError<io::Error>>,
    ) -> io::Result<bool> {
        let block = solve.block();
        let mut assembly = self.assembly.lock();
        match found {
            Ok(outcome) => {
                let is_complete = assembly.record_solve(solve, outcome, &mut self.disk.clone())?;
                let symbols = assembly.geometry().symbols_of(block);
                drop(assembly);
                if is_complete {
                    self.scheduler.record_obtained(symbols);
                    self.solved.fetch_add(1, Relaxed);
                    self.complete(block);
                }
                Ok(is_complete)
            }
            Err(SolveError::Store(why)) => {
                assembly.abandon(solve);
                Err(why)
            }
            // The source signed wrong repair symbols: drop them and wait for the block's source symbols.
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

fn lack(assembly: &Assembly, block: u32) -> MissingSymbols {
    let symbols = assembly.geometry().symbols_of(block);
    let missing = assembly.have().missing_from(symbols.start);
    let missing = missing.take_while(|run| run.start < symbols.end).take(MAX_RANGES);
    let runs = missing.map(|run| (run.start, run.end.min(symbols.end))).collect();
    MissingSymbols { need: assembly.lacks(block), runs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::empty;
    use thalweg_fountain::{
        ReceiptOutcome,
        codec::{BlockEncoder, PlanCache},
    };
    use thalweg_units::Rate;

    #[tokio::test]
    async fn solved_blocks_are_not_requested_from_the_next_parent() {
        let dir = tempfile::tempdir().unwrap();
        let mut content = vec![0; 9 << 20];
        blake3::Hasher::new().update(b"solved").finalize_xof().fill(&mut content);
        let store = empty(dir.path(), &content);
        let geometry = store.known.geometry;
        let scheduler = Arc::new(SymbolScheduler::new(geometry, store.have().clone(), 1));
        let intake =
            Intake::new(&store, Arc::clone(&scheduler), dir.path(), Arc::default()).unwrap();
        let (disk, arrivals) = mpsc::channel(64);
        let working = tokio::spawn(Arc::clone(&intake).run(arrivals));

        // All source symbols of the first block but two, and three repair symbols.
        let first = geometry.bytes_of(0);
        let first = &content[first.start as usize..first.end as usize];
        let k = geometry.source_symbols_of(0);
        let plan = PlanCache::new().get(k).unwrap();
        let repair = BlockEncoder::new(&geometry, 0, first, &plan).unwrap().repair(k..k + 3);
        let source = first.chunks(geometry.symbol_bytes() as usize).map(<[u8]>::to_vec);
        let all = (2..k).zip(source.skip(2)).chain((k..).zip(repair));
        for (esi, bytes) in all {
            let id = SymbolId { block: 0, esi };
            if let Some(index) = geometry.index(id) {
                scheduler.record_obtained(index..index + 1);
            }
            let frame = Arc::new([vec![0; FRAME_HEAD], bytes].concat());
            disk.send(DiskMessage::Symbol(ReceivedSymbol { id, frame, got: Arc::default() }))
                .await
                .unwrap();
        }
        drop(disk);
        working.await.unwrap().unwrap();
        assert!(store.have().holds_block(0));

        let parent = scheduler.join(Rate::from_mbps(1000.0), Duration::from_millis(1));
        scheduler.record_held(parent, &[(0, geometry.symbols())]);
        let mut asked = Vec::new();
        while let asks @ [_, ..] = &scheduler.next_requests(parent)[..] {
            for &(from, to) in asks {
                asked.push(from..to);
                let arrive =
                    |index| assert_eq!(scheduler.receive(parent, index), ReceiptOutcome::Fresh);
                (from..to).for_each(arrive);
            }
        }
        let first_of_all = asked.iter().map(|range| range.start).min();
        assert_eq!(first_of_all, Some(u64::from(k)), "{asked:?}");
    }
}
