//! The child's end of a pull leg: requests symbols, verifies them, and passes them to the disk.

use super::{
    Leg, SymbolScheduler,
    io::{LegReader, LegWriter, invalid},
};
use crate::{
    ring::{DiskMessage, NodeRing, ReceivedSymbol},
    store::Store,
};
use parking_lot::Mutex;
use std::{
    collections::BTreeSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use thalweg_fountain::{ParentId, ReceiptOutcome, SymbolId, digest::SourcePage};
use thalweg_units::Rate;
use thalweg_wire::cast::{
    ChildMessage, FRAME_HEAD, Fault, Frame, MAX_PARENT_MESSAGE, MAX_RANGES, ParentMessage,
    SymbolHead, are_sound,
};
use thiserror::Error;
use tokio::{
    sync::{
        Notify,
        mpsc::{self, error::SendError},
    },
    time::{Instant, timeout},
};

/// Interval for checking whether a parent is silent or can be asked for more.
const LOOK: Duration = Duration::from_millis(500);

/// Timeout for receiving the rest of a message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(20);

/// More unrequested symbols than this are treated as misbehaviour; fewer, as an error.
const MAX_UNASKED: u64 = 64;

/// Interval of keep-alive messages to the parent.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// Counts the bytes received from one parent.
#[derive(Debug, Default)]
pub struct ReceivedBytes {
    /// Bytes of symbols.
    pub bytes: AtomicU64,
    /// Those of them that were of no use.
    pub beyond: AtomicU64,
}

impl ReceivedBytes {
    /// Bytes of symbols that were of use.
    pub fn useful(&self) -> u64 {
        self.bytes.load(Relaxed).saturating_sub(self.beyond.load(Relaxed))
    }
}

/// What a leg to a parent needs.
#[derive(Clone, Debug)]
pub struct PullContext {
    pub store: Arc<Store>,
    /// The node's ring, from which received symbols are forwarded.
    pub node: Arc<NodeRing>,
    /// Decides which symbols are requested from which parent.
    pub scheduler: Arc<SymbolScheduler>,
    /// Received symbols, for the disk.
    pub disk: mpsc::Sender<DiskMessage>,
    /// Counters of received bytes.
    pub got: Arc<ReceivedBytes>,
    /// The expected rate of the parent; zero if unknown.
    pub expected: Rate,
}

impl PullContext {
    /// Ends the reception because this node's own disk failed; the parent is not at fault.
    async fn broken(&self, why: io::Error) -> LegEnd {
        // If sending fails, the disk's thread, and so the reception, has already ended.
        _ = self.disk.send(DiskMessage::Broken(why)).await;
        LegEnd::Done
    }
}

/// Why a leg ended.
#[derive(Debug, Error)]
pub enum LegEnd {
    /// The parent sent data that does not match the digests.
    #[error("{0}")]
    Corrupt(String),
    /// The parent owes symbols and sends nothing.
    #[error("no new symbols from the parent for too long ({0} requested ones are outstanding)")]
    Silent(u64),
    #[error("{0}")]
    Lost(#[from] io::Error),
    #[error("the object is complete")]
    Done,
}

impl LegEnd {
    /// The fault that is reported to the source.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Corrupt(_) => Some(Fault::Corrupt),
            Self::Silent(_) => Some(Fault::Silent),
            Self::Lost(_) => Some(Fault::Lost),
            Self::Done => None,
        }
    }
}

struct PullLeg {
    context: PullContext,
    parent: ParentId,
    /// Blocks whose pages were requested on this leg.
    pages: Mutex<BTreeSet<u32>>,
    came: Notify,
    /// Symbols that arrived without a request.
    unasked: AtomicU64,
}

/// A parent registered at the scheduler until this is dropped, however the leg ends.
struct Registration(Arc<SymbolScheduler>, ParentId);

impl Drop for Registration {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

/// Pulls from one parent until everything is present or the parent must be left.
pub async fn pull(context: PullContext, leg: Leg) -> LegEnd {
    let parent = context.scheduler.join(context.expected, leg.round_trip().unwrap_or_default());
    let _registration = Registration(Arc::clone(&context.scheduler), parent);
    let pulling = PullLeg {
        context,
        parent,
        pages: Mutex::default(),
        came: Notify::new(),
        unasked: AtomicU64::new(0),
    };
    let Leg { reader, mut writer, .. } = leg;
    let left = tokio::select! {
        left = pulling.receive(reader) => left,
        left = pulling.ask(&mut writer) => left,
    };
    if matches!(left, LegEnd::Done) {
        // If sending fails, the parent notices the end of the connection.
        _ = writer.write_message(&ChildMessage::Bye).await;
    }
    writer.close().await;
    left
}

impl PullLeg {
    async fn receive(&self, mut reader: LegReader) -> LegEnd {
        loop {
            let heard = match timeout(LOOK, reader.wait_readable()).await {
                Ok(Ok(())) => self.read_frame(&mut reader).await,
                Ok(Err(lost)) => Err(lost.into()),
                Err(_) if self.context.scheduler.is_silent(self.parent) => {
                    let status = self.context.scheduler.status(self.parent);
                    Err(LegEnd::Silent(status.map_or(0, |status| status.outstanding)))
                }
                Err(_) => continue,
            };
            if let Err(left) = heard {
                return left;
            }
        }
    }

    async fn read_frame(&self, reader: &mut LegReader) -> Result<(), LegEnd> {
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

    async fn accept_symbol(&self, head: SymbolHead, frame: Vec<u8>) -> Result<(), LegEnd> {
        let store = &self.context.store;
        let id = SymbolId { block: head.block, esi: head.esi };
        let index = store.known.geometry.index(id);
        let index = index.ok_or_else(|| {
            LegEnd::Corrupt(format!("{id:?} from the parent is not a source symbol"))
        })?;
        let page = match store.pages.cached(id.block) {
            Some(page) => page,
            None => self.page(id.block).await?,
        };
        let bytes = frame.get(FRAME_HEAD..).unwrap_or_default();
        if let Err(wrong) = page.verify(&store.known.geometry, id, bytes) {
            return Err(LegEnd::Corrupt(wrong.to_string()));
        }
        let length = bytes.len() as u64;
        self.context.got.bytes.fetch_add(length, Relaxed);
        let arrived = self.context.scheduler.receive(self.parent, index);
        self.came.notify_one();
        if arrived != ReceiptOutcome::Fresh {
            self.context.got.beyond.fetch_add(length, Relaxed);
            return self.count_useless(arrived);
        }
        let frame = Arc::new(frame);
        if self.context.node.ring.has_children() {
            self.context.node.forward(id, &frame, &self.context.node.proof_of(&page));
        }
        let piece = ReceivedSymbol { id, frame, got: Arc::clone(&self.context.got) };
        let sent = self.context.disk.send(DiskMessage::Symbol(piece)).await;
        sent.map_err(|_: SendError<_>| LegEnd::Done)
    }

    /// Tolerates duplicates, which are expected for symbols requested from two parents, and a few unrequested symbols.
    fn count_useless(&self, arrived: ReceiptOutcome) -> Result<(), LegEnd> {
        let unasked = match arrived {
            ReceiptOutcome::Unrequested => self.unasked.fetch_add(1, Relaxed) + 1,
            _ => 0,
        };
        match unasked > MAX_UNASKED {
            true => Err(LegEnd::Corrupt(
                "the parent keeps sending symbols that were not requested".into(),
            )),
            false => Ok(()),
        }
    }

    /// The page of a block, which must have been received earlier.
    async fn page(&self, block: u32) -> Result<Arc<SourcePage>, LegEnd> {
        let store = Arc::clone(&self.context.store);
        let read = tokio::task::spawn_blocking(move || store.page(block));
        let page = match read.await.map_err(io::Error::other)? {
            Ok(page) => page,
            Err(why) => return Err(self.context.broken(why).await),
        };
        page.ok_or_else(|| {
            LegEnd::Corrupt(format!(
                "the parent sent a symbol of block {block} before the digests of the block"
            ))
        })
    }

    async fn handle_message(&self, message: ParentMessage) -> Result<(), LegEnd> {
        let store = &self.context.store;
        match message {
            ParentMessage::Have(runs) => {
                self.check(&runs)?;
                self.context.scheduler.record_held(self.parent, &runs);
                self.came.notify_one();
            }
            ParentMessage::Unavailable(runs) => {
                self.check(&runs)?;
                self.context.scheduler.withdraw(self.parent, &runs);
            }
            ParentMessage::Page { block, digests } => {
                let (digests, rest) = digests.as_chunks::<32>();
                if !rest.is_empty() {
                    return Err(LegEnd::Corrupt(
                        "the parent sent a page with a truncated digest".into(),
                    ));
                }
                let page = SourcePage { block, digests: digests.to_vec() };
                match store.pages.learn(&store.known, page) {
                    Ok(learnt) => learnt.map_err(|wrong| LegEnd::Corrupt(wrong.to_string()))?,
                    Err(why) => return Err(self.context.broken(why).await),
                }
            }
            ParentMessage::Bye(why) => {
                let why: String = why.chars().filter(|c| !c.is_control()).take(500).collect();
                return Err(
                    io::Error::other(format!("the parent ended the connection: {why}")).into()
                );
            }
            ParentMessage::NoPage(block) => {
                return Err(invalid(format!(
                    "the parent has symbols of block {block} but not the digests of the block"
                ))
                .into());
            }
            // Used on stream legs only.
            ParentMessage::RepairPage { .. } | ParentMessage::BlockSent(_) => {}
        }
        Ok(())
    }

    fn check(&self, runs: &[(u64, u64)]) -> Result<(), LegEnd> {
        match are_sound(runs, self.context.store.known.geometry.symbols()) {
            true => Ok(()),
            false => {
                Err(invalid("the parent listed symbols that do not exist or are out of order")
                    .into())
            }
        }
    }

    async fn ask(&self, writer: &mut LegWriter) -> LegEnd {
        if let Err(lost) = self.report_held(writer).await {
            return lost.into();
        }
        let (mut last_message, mut changes) = (Instant::now(), self.context.store.changes());
        loop {
            let changed = self.context.scheduler.changed.notified();
            if self.context.store.have().is_complete() {
                return LegEnd::Done;
            }
            let is_quiet = last_message.elapsed() > SIGN_OF_LIFE;
            match self.ask_now(writer, is_quiet).await {
                Ok(true) => last_message = Instant::now(),
                Ok(false) => {}
                Err(lost) => return lost.into(),
            }
            tokio::select! {
                () = changed => {}
                () = self.came.notified() => {}
                // The last symbol is written some time after it arrived, and nothing else wakes this task then.
                () = self.context.store.completed(&mut changes) => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Tells the parent which symbols are already present.
    async fn report_held(&self, writer: &mut LegWriter) -> io::Result<()> {
        let held: Vec<(u64, u64)> = {
            let have = self.context.store.have();
            have.runs().take(MAX_RANGES).map(|run| (run.start, run.end)).collect()
        };
        if !held.is_empty() {
            writer.write_message(&ChildMessage::Held(held)).await?;
        }
        Ok(())
    }

    /// Requests what may be requested now; with `must`, sends a message in any case. Returns whether one was sent.
    async fn ask_now(&self, writer: &mut LegWriter, must: bool) -> io::Result<bool> {
        let asks = self.context.scheduler.next_requests(self.parent);
        if asks.is_empty() && must {
            writer.write_message(&ChildMessage::Request(Vec::new())).await?;
        }
        for asks in asks.chunks(MAX_RANGES) {
            for block in self.unknown_pages(asks) {
                writer.write_message(&ChildMessage::Page(block)).await?;
            }
            writer.write_message(&ChildMessage::Request(asks.to_vec())).await?;
        }
        Ok(must || !asks.is_empty())
    }

    /// Blocks of these symbols whose pages are neither known nor requested on this leg.
    fn unknown_pages(&self, asks: &[(u64, u64)]) -> Vec<u32> {
        let per = u64::from(self.context.store.known.geometry.block_symbols());
        let mut asked = self.pages.lock();
        let blocks = asks.iter().flat_map(|(from, to)| from / per..=(to - 1) / per);
        let blocks = blocks.map(|block| block as u32);
        let is_new = |block: &u32| asked.insert(*block);
        let new: Vec<u32> = blocks.filter(is_new).collect();
        new.into_iter().filter(|block| self.context.store.pages.cached(*block).is_none()).collect()
    }
}

/// Reads the rest of a frame whose head has arrived, with a timeout.
async fn within<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    thalweg_base::timeout::within(MESSAGE_TIMEOUT, "complete message", step).await
}
