//! The child's end of a stream leg: verifies symbols, forwards them, and stores them.

use super::{
    intake::{DiskMessage, Intake, ReceivedSymbol},
    node::NodeRing,
    proof_cache::{Proof, ProofCache},
    repairs::RepairEncoder,
    replay_detector::ReplayDetector,
    shared::SharedRing,
    upstream_queue::UpstreamQueue,
};
use crate::{
    leg::{
        Leg, LegReader, LegWriter, SymbolScheduler,
        child::{LegEnd, ReceivedBytes},
        invalid,
    },
    store::{KnownObject, Store},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use thalweg_fountain::{SymbolId, digest::SourcePage};
use thalweg_wire::cast::{
    ChildMessage, FRAME_HEAD, Frame, MAX_PARENT_MESSAGE, ParentMessage, SymbolHead,
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

/// Timeout for a silent parent. Parents send a message at least every 5 s.
const SILENCE: Duration = Duration::from_secs(20);

/// Timeout for receiving the rest of a message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// Interval of keep-alive messages to the parent.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// How long a node that has everything waits for the sheets that it requested. Less than its conductor waits for the
/// leg's end.
const SHEET_TIMEOUT: Duration = Duration::from_millis(800);

/// Interval for checking whether the stream is over.
const LOOK: Duration = Duration::from_millis(100);

/// A live parent that has sent nothing useful for this long is left for another.
const STARVATION: Duration = Duration::from_secs(30);

/// Where symbols go.
#[derive(Clone, Debug)]
pub enum Sink {
    /// At a receiver: to the disk, and to children through the ring.
    Store {
        /// The ring and the object.
        node: Arc<NodeRing>,
        /// All symbols held, repair symbols included.
        intake: Arc<Intake>,
        /// Decides which symbols are requested; those that arrive by this stream are not.
        scheduler: Arc<SymbolScheduler>,
        /// Symbols for the disk.
        disk: mpsc::Sender<DiskMessage>,
    },
    /// At a relay: to children through the ring.
    Relay {
        /// The object's offer and digests.
        known: Arc<KnownObject>,
        ring: Arc<SharedRing>,
        proofs: Arc<ProofCache>,
        /// Received sheets.
        repairs: Arc<RepairEncoder>,
        /// Messages of the relay's children, for its parent.
        upstream: Arc<UpstreamQueue>,
    },
}

impl Sink {
    fn known(&self) -> &KnownObject {
        match self {
            Self::Store { node, .. } => &node.store.known,
            Self::Relay { known, .. } => known,
        }
    }

    fn proofs(&self) -> &ProofCache {
        match self {
            Self::Store { node, .. } => &node.proofs,
            Self::Relay { proofs, .. } => proofs,
        }
    }

    fn store(&self) -> Option<&Arc<Store>> {
        match self {
            Self::Store { node, .. } => Some(&node.store),
            Self::Relay { .. } => None,
        }
    }

    /// Whether no more symbols of a block are of use.
    fn is_done(&self, block: u32) -> bool {
        match self {
            Self::Store { node, .. } => node.store.have().holds_block(block),
            Self::Relay { ring, .. } => ring.lock().ring.done_by_all(block),
        }
    }

    fn awaits_sheets(&self) -> bool {
        match self {
            Self::Store { node, .. } => node.awaits_sheets(),
            Self::Relay { .. } => false,
        }
    }

    /// Whether no more symbols at all are of use.
    fn is_over(&self) -> bool {
        match self {
            Self::Store { node, .. } => node.store.have().is_complete(),
            Self::Relay { ring, .. } => !ring.has_children(),
        }
    }
}

/// The state of one leg.
struct StreamLeg {
    sink: Sink,
    upstream: Arc<UpstreamQueue>,
    got: Arc<ReceivedBytes>,
    replays: Arc<Mutex<ReplayDetector>>,
    /// When the last useful symbol came.
    fed: Instant,
}

/// Receives what a parent streams until nothing more is of use, or the parent must be left.
pub async fn stream(sink: Sink, got: Arc<ReceivedBytes>, leg: Leg) -> LegEnd {
    let upstream = match &sink {
        Sink::Store { intake, node, .. } => {
            let upstream = intake.attach();
            node.attach(&upstream);
            upstream
        }
        Sink::Relay { upstream, ring, known, .. } => {
            upstream.reset();
            let blocks = 0..known.geometry.blocks();
            let inner = ring.lock();
            blocks.filter(|b| inner.ring.done_by_all(*b)).for_each(|block| upstream.finish(block));
            Arc::clone(upstream)
        }
    };
    let Leg { reader, mut writer, .. } = leg;
    let (over, replays) = (
        sink.clone(),
        Arc::new(Mutex::new(ReplayDetector::new(sink.known().geometry.block_symbols()))),
    );
    let (its, fed) = (Arc::clone(&replays), Instant::now());
    let mut streaming = StreamLeg { sink, upstream: Arc::clone(&upstream), got, replays: its, fed };
    let left = tokio::select! {
        left = streaming.receive(reader) => left,
        left = speak(&upstream, &replays, &mut writer) => left.into(),
        () = until_over(&over) => LegEnd::Done,
    };
    if matches!(left, LegEnd::Done) {
        // If sending fails, the parent notices the end of the connection.
        _ = writer.write_message(&ChildMessage::Bye).await;
    }
    writer.close().await;
    left
}

async fn until_over(sink: &Sink) {
    match sink.store() {
        // The store owns the sender, so this ends only with the last symbol.
        Some(store) => _ = store.changes().wait_for(|_| store.have().is_complete()).await,
        None => {
            while !sink.is_over() {
                sleep(LOOK).await;
            }
        }
    }
    // Without the requested sheets, a node that has everything can only send each child the source symbols that it
    // lacks, not repair symbols that serve several children at once.
    let until = Instant::now() + SHEET_TIMEOUT;
    while sink.awaits_sheets() && Instant::now() < until {
        sleep(LOOK).await;
    }
}

/// Sends the first messages and the empty request that ends them, then messages as they arise.
async fn speak(
    upstream: &UpstreamQueue,
    replays: &Mutex<ReplayDetector>,
    writer: &mut LegWriter,
) -> io::Error {
    let mut is_due = true;
    loop {
        let mut messages = upstream.take();
        messages.extend(is_due.then(|| ChildMessage::Request(Vec::new())));
        for message in messages {
            lock(replays).record_message(&message);
            if let Err(why) = writer.write_message(&message).await {
                return why;
            }
        }
        is_due = timeout(SIGN_OF_LIFE, upstream.changed.notified()).await.is_err();
    }
}

impl StreamLeg {
    async fn receive(&mut self, mut reader: LegReader) -> LegEnd {
        loop {
            let heard = match timeout(SILENCE, reader.wait_readable()).await {
                Ok(Ok(())) if self.fed.elapsed() < STARVATION => self.read_frame(&mut reader).await,
                Ok(Ok(())) => Err(LegEnd::Silent(0)),
                Ok(Err(lost)) => Err(lost.into()),
                Err(_) => Err(LegEnd::Silent(0)),
            };
            if let Err(left) = heard {
                return left;
            }
        }
    }

    async fn read_frame(&mut self, reader: &mut LegReader) -> Result<(), LegEnd> {
        match within(reader.read_head()).await? {
            Frame::Symbol(head) => {
                let frame = within(reader.read_symbol(head)).await?;
                self.accept_symbol(head, frame).await
            }
            Frame::Message(length) if length <= MAX_PARENT_MESSAGE => {
                let message = within(reader.read_body(length)).await?;
                self.handle_message(message).await
            }
            Frame::Message(_) => Err(invalid("the parent sent a message that is too long").into()),
        }
    }

    async fn accept_symbol(&mut self, head: SymbolHead, frame: Vec<u8>) -> Result<(), LegEnd> {
        let id = SymbolId { block: head.block, esi: head.esi };
        let known = self.sink.known();
        if !known.geometry.has(id) {
            return Err(LegEnd::Corrupt(format!("{id:?} from the parent does not exist")));
        }
        let proof = self.proof(id).await?;
        let bytes = frame.get(FRAME_HEAD..).unwrap_or_default();
        if let Err(wrong) = proof.verify(known, id, bytes) {
            return Err(LegEnd::Corrupt(wrong.to_string()));
        }
        let length = bytes.len() as u64;
        self.got.bytes.fetch_add(length, Relaxed);
        let is_done = self.sink.is_done(id.block);
        let (is_replay, is_on_purpose) = {
            let mut replays = lock(&self.replays);
            (replays.is_replay(id, is_done), replays.is_on_purpose())
        };
        if is_replay {
            self.got.beyond.fetch_add(length, Relaxed);
            return match is_on_purpose {
                true => Err(LegEnd::Corrupt(
                    "the parent keeps sending symbols that have already arrived".into(),
                )),
                false => Ok(()),
            };
        }
        self.fed = Instant::now();
        self.keep(id, Arc::new(frame), &proof).await
    }

    async fn keep(&self, id: SymbolId, frame: Arc<Vec<u8>>, proof: &Proof) -> Result<(), LegEnd> {
        match &self.sink {
            Sink::Store { node, scheduler, disk, .. } => {
                node.forward(id, &frame, proof);
                if let Some(index) = node.store.known.geometry.index(id) {
                    scheduler.record_obtained(index..index + 1);
                }
                let piece = ReceivedSymbol { id, frame, got: Arc::clone(&self.got) };
                disk.send(DiskMessage::Symbol(piece)).await.map_err(|_| LegEnd::Done)
            }
            Sink::Relay { ring, .. } => {
                _ = ring.push(id, &frame, proof);
                Ok(())
            }
        }
    }

    /// The proof of a symbol. It must have arrived before the symbol.
    async fn proof(&self, id: SymbolId) -> Result<Proof, LegEnd> {
        let is_source = self.sink.known().geometry.is_source(id);
        if let Some(proof) = self.sink.proofs().get(id.block, is_source) {
            return Ok(proof);
        }
        let found = match self.sink.store().filter(|_| is_source) {
            None => None,
            Some(store) => {
                let store = Arc::clone(store);
                let read = tokio::task::spawn_blocking(move || store.page(id.block));
                match read.await.map_err(io::Error::other)? {
                    Ok(page) => page,
                    Err(why) => return Err(self.broken(why).await),
                }
            }
        };
        let page = found.ok_or_else(|| {
            LegEnd::Corrupt(format!("{id:?} arrived before the digests of its block"))
        })?;
        let proof = Proof::source(&page);
        self.sink.proofs().put(proof.clone());
        Ok(proof)
    }

    async fn handle_message(&mut self, message: ParentMessage) -> Result<(), LegEnd> {
        match message {
            ParentMessage::Page { block, digests } => self.accept_page(block, &digests).await,
            ParentMessage::RepairPage { page, .. } => match &self.sink {
                Sink::Store { node, .. } => node.receive_sheet(page).map_err(LegEnd::Corrupt),
                Sink::Relay { known, repairs, ring, .. } => {
                    let proof = repairs.learn(known, page).map_err(LegEnd::Corrupt)?;
                    ring.deliver_page(&proof);
                    Ok(())
                }
            },
            ParentMessage::BlockSent(block) if block >= self.sink.known().geometry.blocks() => {
                Err(invalid("the parent asked about a block that does not exist").into())
            }
            ParentMessage::BlockSent(block) => match &self.sink {
                Sink::Store { disk, .. } => {
                    let asked = DiskMessage::Spent(block, Arc::clone(&self.upstream));
                    disk.send(asked).await.map_err(|_| LegEnd::Done)
                }
                Sink::Relay { ring, .. } => {
                    ring.ask(block);
                    Ok(())
                }
            },
            ParentMessage::Bye(why) => {
                let why: String = why.chars().filter(|c| !c.is_control()).take(500).collect();
                Err(io::Error::other(format!("the parent ended the connection: {why}")).into())
            }
            // Without meaning on a stream leg: the parent sends whatever it has.
            ParentMessage::Have(_) | ParentMessage::Unavailable(_) | ParentMessage::NoPage(_) => {
                Ok(())
            }
        }
    }

    /// Ends the reception because this node's own disk failed; the parent is not at fault.
    async fn broken(&self, why: io::Error) -> LegEnd {
        if let Sink::Store { disk, .. } = &self.sink {
            // If sending fails, the disk's thread, and so the reception, has already ended.
            _ = disk.send(DiskMessage::Broken(why)).await;
        }
        LegEnd::Done
    }

    async fn accept_page(&self, block: u32, digests: &[u8]) -> Result<(), LegEnd> {
        let (digests, rest) = digests.as_chunks::<32>();
        if !rest.is_empty() {
            return Err(LegEnd::Corrupt("the parent sent a page with a truncated digest".into()));
        }
        let page = SourcePage { block, digests: digests.to_vec() };
        let known = self.sink.known();
        let proof = Proof::source(&Arc::new(page.clone()));
        let wrong = match self.sink.store() {
            Some(store) => match store.pages.learn(known, page) {
                Ok(learnt) => learnt.err(),
                Err(why) => return Err(self.broken(why).await),
            },
            None => known.check(&page).err(),
        };
        if let Some(wrong) = wrong {
            return Err(LegEnd::Corrupt(wrong.to_string()));
        }
        self.sink.proofs().put(proof);
        Ok(())
    }
}

fn lock(replays: &Mutex<ReplayDetector>) -> MutexGuard<'_, ReplayDetector> {
    replays.lock()
}

/// Reads the rest of a frame whose head has arrived, with a timeout.
async fn within<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    thalweg_base::timeout::within(MESSAGE_TIMEOUT, "complete message", step).await
}
