//! The child's end of a leg that streams: proves what comes, hands it on, keeps it.

use super::{
    book::{PageBook, Proof},
    intake::{Intake, Piece, ToDisk},
    node::NodeRing,
    repairs::Repairs,
    seen::Seen,
    shared::SharedRing,
    up::Up,
};
use crate::{
    leg::{
        Desk, Hear, Leg, Say,
        child::{Got, Left},
        invalid,
    },
    store::{Known, Store},
};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};
use thalweg_fountain::{SymbolId, digest::SourcePage};
use thalweg_wire::cast::{FRAME_HEAD, Frame, MAX_SAID, Said, SymbolHead, Wish};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

/// A parent says something every five seconds; one that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(20);

/// What was begun must be whole so soon.
const WHOLE: Duration = Duration::from_secs(20);

/// Something is said to the parent at least so often, so that it knows of us.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// Who has all waits so long at most for the sheets that it asked for: less than its conductor
/// waits for it.
const SHEETS: Duration = Duration::from_millis(800);

/// How often it is looked whether all is here.
const LOOK: Duration = Duration::from_millis(100);

/// A parent that has given nothing of use for so long, and is there, is left for another.
const FED: Duration = Duration::from_secs(30);

/// Where symbols go.
#[derive(Clone, Debug)]
pub enum Sink {
    /// To a receiver's disk, and on from its ring.
    Store {
        /// Ring and object.
        node: Arc<NodeRing>,
        /// What is held, repair symbols included.
        intake: Arc<Intake>,
        /// Who is asked for what: what streams in is not asked of others.
        desk: Arc<Desk>,
        /// To the disk.
        disk: mpsc::Sender<ToDisk>,
    },
    /// On from a relay's ring, and nowhere else.
    Relay {
        /// What proves it.
        known: Arc<Known>,
        /// The ring.
        ring: Arc<SharedRing>,
        /// Digests.
        book: Arc<PageBook>,
        /// Sheets that come.
        repairs: Arc<Repairs>,
        /// What its children say.
        up: Arc<Up>,
    },
}

impl Sink {
    fn known(&self) -> &Known {
        match self {
            Self::Store { node, .. } => &node.store.known,
            Self::Relay { known, .. } => known,
        }
    }

    fn book(&self) -> &PageBook {
        match self {
            Self::Store { node, .. } => &node.book,
            Self::Relay { book, .. } => book,
        }
    }

    fn store(&self) -> Option<&Arc<Store>> {
        match self {
            Self::Store { node, .. } => Some(&node.store),
            Self::Relay { .. } => None,
        }
    }

    /// Whether nothing more of a block is of use.
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

    /// Whether nothing more at all is of use.
    fn is_over(&self) -> bool {
        match self {
            Self::Store { node, .. } => node.store.have().is_complete(),
            Self::Relay { ring, .. } => !ring.has_children(),
        }
    }
}

/// One leg.
struct Streaming {
    sink: Sink,
    up: Arc<Up>,
    got: Arc<Got>,
    seen: Arc<Mutex<Seen>>,
    /// When the last symbol came that was of use.
    fed: Instant,
}

/// Takes what a parent streams until nothing more is of use, or the parent is left.
pub async fn stream(sink: Sink, got: Arc<Got>, leg: Leg) -> Left {
    let up = match &sink {
        Sink::Store { intake, node, .. } => {
            let up = intake.attach();
            node.attach(&up);
            up
        }
        Sink::Relay { up, ring, known, .. } => {
            up.reset();
            let blocks = 0..known.geometry.blocks();
            let inner = ring.lock();
            blocks.filter(|b| inner.ring.done_by_all(*b)).for_each(|block| up.done(block));
            Arc::clone(up)
        }
    };
    let Leg { hear, mut say, .. } = leg;
    let (over, seen) =
        (sink.clone(), Arc::new(Mutex::new(Seen::new(sink.known().geometry.block_symbols()))));
    let (its, fed) = (Arc::clone(&seen), Instant::now());
    let mut streaming = Streaming { sink, up: Arc::clone(&up), got, seen: its, fed };
    let left = tokio::select! {
        left = streaming.hear(hear) => left,
        left = speak(&up, &seen, &mut say) => left.into(),
        () = until_over(&over) => Left::Done,
    };
    if matches!(left, Left::Done) {
        // It learns it from the connection's end as well.
        _ = say.message(&Wish::Bye).await;
    }
    say.close().await;
    left
}

async fn until_over(sink: &Sink) {
    match sink.store() {
        // The store has the sender: this ends with the last symbol, or not at all.
        Some(store) => _ = store.news().wait_for(|_| store.have().is_complete()).await,
        None => {
            while !sink.is_over() {
                sleep(LOOK).await;
            }
        }
    }
    // Without the sheets that it asked for a node that has all gives its children what each lacks, and
    // nothing that serves several at once.
    let until = Instant::now() + SHEETS;
    while sink.awaits_sheets() && Instant::now() < until {
        sleep(LOOK).await;
    }
}

/// First all that is known, and the end of it; then what comes about.
async fn speak(up: &Up, seen: &Mutex<Seen>, say: &mut Say) -> io::Error {
    let mut is_due = true;
    loop {
        let mut wishes = up.take();
        wishes.extend(is_due.then(|| Wish::Ask(Vec::new())));
        for wish in wishes {
            lock(seen).note(&wish);
            if let Err(why) = say.message(&wish).await {
                return why;
            }
        }
        is_due = timeout(SIGN_OF_LIFE, up.changed.notified()).await.is_err();
    }
}

impl Streaming {
    async fn hear(&mut self, mut hear: Hear) -> Left {
        loop {
            let heard = match timeout(SILENCE, hear.ready()).await {
                Ok(Ok(())) if self.fed.elapsed() < FED => self.frame(&mut hear).await,
                Ok(Ok(())) => Err(Left::Silent(0)),
                Ok(Err(lost)) => Err(lost.into()),
                Err(_) => Err(Left::Silent(0)),
            };
            if let Err(left) = heard {
                return left;
            }
        }
    }

    async fn frame(&mut self, hear: &mut Hear) -> Result<(), Left> {
        match within(hear.frame()).await? {
            Frame::Symbol(head) => {
                let frame = within(hear.framed(head)).await?;
                self.symbol(head, frame).await
            }
            Frame::Message(length) if length <= MAX_SAID => {
                let said = within(hear.body(length)).await?;
                self.said(said).await
            }
            Frame::Message(_) => Err(invalid("a message that is too long").into()),
        }
    }

    async fn symbol(&mut self, head: SymbolHead, frame: Vec<u8>) -> Result<(), Left> {
        let id = SymbolId { block: head.block, esi: head.esi };
        let known = self.sink.known();
        if !known.geometry.has(id) {
            return Err(Left::Corrupt(format!("{id:?} does not exist")));
        }
        let proof = self.proof(id).await?;
        let bytes = frame.get(FRAME_HEAD..).unwrap_or_default();
        if let Err(wrong) = proof.verify(known, id, bytes) {
            return Err(Left::Corrupt(wrong.to_string()));
        }
        let length = bytes.len() as u64;
        self.got.bytes.fetch_add(length, Relaxed);
        let is_done = self.sink.is_done(id.block);
        let (is_replay, is_on_purpose) = {
            let mut seen = lock(&self.seen);
            (seen.is_replay(id, is_done), seen.is_on_purpose())
        };
        if is_replay {
            self.got.beyond.fetch_add(length, Relaxed);
            return match is_on_purpose {
                true => Err(Left::Corrupt("it sends again and again what came already".into())),
                false => Ok(()),
            };
        }
        self.fed = Instant::now();
        self.keep(id, Arc::new(frame), &proof).await
    }

    async fn keep(&self, id: SymbolId, frame: Arc<Vec<u8>>, proof: &Proof) -> Result<(), Left> {
        match &self.sink {
            Sink::Store { node, desk, disk, .. } => {
                node.hand_on(id, &frame, proof);
                if let Some(index) = node.store.known.geometry.index(id) {
                    desk.obtained(index..index + 1);
                }
                let piece = Piece { id, frame, got: Arc::clone(&self.got) };
                disk.send(ToDisk::Symbol(piece)).await.map_err(|_| Left::Done)
            }
            Sink::Relay { ring, .. } => {
                _ = ring.push(id, &frame, proof);
                Ok(())
            }
        }
    }

    /// What proves a symbol: it came before it.
    async fn proof(&self, id: SymbolId) -> Result<Proof, Left> {
        let is_source = self.sink.known().geometry.is_source(id);
        if let Some(proof) = self.sink.book().get(id.block, is_source) {
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
        let page = found.ok_or_else(|| Left::Corrupt(format!("{id:?} came before its page")))?;
        let proof = Proof::source(&page);
        self.sink.book().put(proof.clone());
        Ok(proof)
    }

    async fn said(&mut self, said: Said) -> Result<(), Left> {
        match said {
            Said::Page { block, digests } => self.page(block, &digests).await,
            Said::RepairPage { page, .. } => match &self.sink {
                Sink::Store { node, .. } => node.sheet_came(page).map_err(Left::Corrupt),
                Sink::Relay { known, repairs, ring, .. } => {
                    let proof = repairs.learn(known, page).map_err(Left::Corrupt)?;
                    ring.page_came(&proof);
                    Ok(())
                }
            },
            Said::Spent(block) if block >= self.sink.known().geometry.blocks() => {
                Err(invalid("it asks about a block that does not exist").into())
            }
            Said::Spent(block) => match &self.sink {
                Sink::Store { disk, .. } => {
                    let asked = ToDisk::Spent(block, Arc::clone(&self.up));
                    disk.send(asked).await.map_err(|_| Left::Done)
                }
                Sink::Relay { ring, .. } => {
                    ring.ask(block);
                    Ok(())
                }
            },
            Said::Bye(why) => {
                let why: String = why.chars().filter(|c| !c.is_control()).take(500).collect();
                Err(io::Error::other(format!("it says: {why}")).into())
            }
            // It streams, whatever it has.
            Said::Have(_) | Said::Gone(_) | Said::NoPage(_) => Ok(()),
        }
    }

    /// This node's own disk fails: the reception ends with that, and no parent is to blame.
    async fn broken(&self, why: io::Error) -> Left {
        if let Sink::Store { disk, .. } = &self.sink {
            // Without the disk's thread it has ended already.
            _ = disk.send(ToDisk::Broken(why)).await;
        }
        Left::Done
    }

    async fn page(&self, block: u32, digests: &[u8]) -> Result<(), Left> {
        let (digests, rest) = digests.as_chunks::<32>();
        if !rest.is_empty() {
            return Err(Left::Corrupt("a page of broken digests".into()));
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
            return Err(Left::Corrupt(wrong.to_string()));
        }
        self.sink.book().put(proof);
        Ok(())
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // A panic in between leaves whole values behind.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rest of a frame whose head is here.
async fn within<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    thalweg_base::timeout::within(WHOLE, "rest of a message", step).await
}
