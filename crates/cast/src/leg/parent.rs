//! The parent's end of a pull leg: announces symbols and sends the requested ones.

use super::{
    Announcer, ChildAnnouncements, Leg,
    io::{LegReader, LegWriter, invalid},
};
use crate::store::Store;
use parking_lot::{Mutex, MutexGuard};
use std::{collections::VecDeque, io, ops::Range, sync::Arc, time::Duration};
use thalweg_wire::cast::{
    ChildMessage, FRAME_HEAD, Frame, MAX_CHILD_MESSAGE, MAX_RANGES, ParentMessage, SymbolHead,
    are_within,
};
use thiserror::Error;
use tokio::{sync::Notify, task::spawn_blocking, time::timeout};

/// Bytes read from the disk and sent at once. On a slow leg, announcements wait for one such piece.
const PIECE: usize = 256 * 1024;

/// The maximum number of outstanding requested bytes of a child: 256 MiB, 2 s at 1 Gbit/s. A queued request takes some
/// bytes per range. A child that requests more violates the protocol, and the leg ends.
const MAX_AHEAD: u64 = 256 << 20;

/// Timeout for a child without requests.
const IDLE: Duration = Duration::from_secs(120);

/// Requests of a child, in order.
#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<ChildRequest>,
    symbols: u64,
}

#[derive(Debug)]
enum ChildRequest {
    Page(u32),
    Symbols(Range<u64>),
}

struct PullServer {
    store: Arc<Store>,
    queue: Mutex<Queue>,
    requested: Notify,
    /// The child's announcements, if symbols are announced to it in parts.
    announcements: Option<Arc<ChildAnnouncements>>,
}

/// Why a leg to a child ended.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The connection failed, or the child violated the protocol.
    #[error("{0}")]
    Leg(#[from] io::Error),
    /// A requested symbol cannot be read, or its file has changed.
    #[error("{0}")]
    Disk(io::Error),
}

/// Serves one child until it says goodbye or is gone. With announcements, symbols are announced in parts as
/// [`thalweg_fountain::AnnouncementScheduler`] decides; otherwise all present symbols are.
///
/// # Errors
/// [`ServeError`].
pub async fn serve(
    store: Arc<Store>,
    leg: Leg,
    announcements: Option<ChildAnnouncements>,
) -> Result<(), ServeError> {
    let announcements = announcements.map(Arc::new);
    let serving =
        PullServer { store, queue: Mutex::default(), requested: Notify::new(), announcements };
    let Leg { reader, mut writer, .. } = leg;
    let ended = tokio::select! {
        heard = serving.receive(reader) => heard.map_err(ServeError::Leg),
        sent = serving.send(&mut writer) => sent,
    };
    if let Err(why) = &ended {
        // Tells the child the reason, if it still listens.
        let bye =
            Frame::encode_message(&ParentMessage::Bye(why.to_string().chars().take(500).collect()));
        _ = timeout(Duration::from_millis(100), writer.write_bytes(&bye)).await;
    }
    writer.close().await;
    ended
}

impl PullServer {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }

    async fn receive(&self, mut reader: LegReader) -> io::Result<()> {
        loop {
            let heard = timeout(IDLE, reader.read_message::<ChildMessage>(MAX_CHILD_MESSAGE)).await;
            let message =
                heard.map_err(|_| io::Error::other("no message from the child for too long"))??;
            if matches!(message, ChildMessage::Bye) {
                return Ok(());
            }
            self.enqueue(message)?;
            self.requested.notify_one();
        }
    }

    fn enqueue(&self, message: ChildMessage) -> io::Result<()> {
        let geometry = &self.store.known.geometry;
        let mut queue = self.queue();
        match message {
            ChildMessage::Request(runs) => {
                check(&runs, geometry.symbols())?;
                if let Some(announcements) = &self.announcements {
                    announcements.record_request(&runs);
                }
                for (from, to) in runs {
                    queue.symbols += to - from;
                    queue.requests.push_back(ChildRequest::Symbols(from..to));
                }
            }
            ChildMessage::Held(runs) => {
                check(&runs, geometry.symbols())?;
                if let Some(announcements) = &self.announcements {
                    announcements.record_held(&runs);
                }
            }
            ChildMessage::Page(block) if block < geometry.blocks() => {
                queue.requests.push_back(ChildRequest::Page(block));
            }
            ChildMessage::Page(_) => {
                return Err(invalid(
                    "the child requested the digests of a block that does not exist",
                ));
            }
            // Used on stream legs only.
            ChildMessage::RepairPage(_)
            | ChildMessage::Done(_)
            | ChildMessage::Missing { .. }
            | ChildMessage::RevokeDone
            | ChildMessage::Bye => {}
        }
        let ahead = queue.symbols * u64::from(geometry.symbol_bytes());
        match ahead > MAX_AHEAD || queue.requests.len() > 4 * MAX_RANGES {
            true => Err(invalid("the child has too many outstanding requests")),
            false => Ok(()),
        }
    }

    async fn send(&self, writer: &mut LegWriter) -> Result<(), ServeError> {
        let mut announcer = Announcer::new(&self.store, self.announcements.clone());
        let mut buffer = Vec::new();
        loop {
            announcer.announce(writer).await?;
            let wanted = self.queue().next(self.symbols_per_read());
            match wanted {
                Some(ChildRequest::Page(block)) => self.send_page(writer, block).await?,
                Some(ChildRequest::Symbols(range)) => {
                    buffer = self.send_symbols(writer, range, buffer).await?;
                }
                None => announcer.wait(&self.requested).await?,
            }
        }
    }

    /// The number of symbols read at once.
    fn symbols_per_read(&self) -> u64 {
        (PIECE as u64 / u64::from(self.store.known.geometry.symbol_bytes())).max(1)
    }

    async fn send_page(&self, writer: &mut LegWriter, block: u32) -> Result<(), ServeError> {
        let store = Arc::clone(&self.store);
        let page = spawn_blocking(move || store.page(block)).await.map_err(io::Error::other)?;
        let page = page.map_err(ServeError::Disk)?;
        let message = match page {
            Some(page) => {
                ParentMessage::Page { block, digests: page.digests.as_flattened().to_vec() }
            }
            None => ParentMessage::NoPage(block),
        };
        Ok(writer.write_bytes(&Frame::encode_message(&message)).await?)
    }

    /// Sends those of these symbols that are present. Returns the buffer for reuse.
    async fn send_symbols(
        &self,
        writer: &mut LegWriter,
        range: Range<u64>,
        buffer: Vec<u8>,
    ) -> Result<Vec<u8>, ServeError> {
        let held: Vec<Range<u64>> = {
            let have = self.store.have();
            let runs = have.runs_from(range.start).take_while(|run| run.start < range.end);
            runs.map(|run| run.start..run.end.min(range.end)).collect()
        };
        let mut at = range.start;
        let mut gone = Vec::new();
        for run in &held {
            gone.extend((at < run.start).then_some((at, run.start)));
            at = run.end;
        }
        gone.extend((at < range.end).then_some((at, range.end)));
        if !gone.is_empty() {
            writer.write_bytes(&Frame::encode_message(&ParentMessage::Unavailable(gone))).await?;
        }
        let mut buffer = buffer;
        for run in held {
            let store = Arc::clone(&self.store);
            let fill = move || fill(&store, run, buffer);
            let filled = spawn_blocking(fill).await.map_err(io::Error::other)?;
            let EncodedFrames { room, frames, symbols } = filled.map_err(ServeError::Disk)?;
            buffer = room;
            writer.write_bytes(buffer.get(..frames).unwrap_or_default()).await?;
            self.store.count_served(symbols);
        }
        Ok(buffer)
    }
}

/// Encoded frames, and the buffer that contains them, for reuse.
struct EncodedFrames {
    room: Vec<u8>,
    /// Length of the frames, from the beginning of the buffer.
    frames: usize,
    /// Bytes of symbols among them.
    symbols: u64,
}

/// Encodes the frames of these symbols. Each symbol is read from the disk directly to its place in the frame.
fn fill(store: &Store, run: Range<u64>, mut room: Vec<u8>) -> io::Result<EncodedFrames> {
    let geometry = &store.known.geometry;
    let absent = || invalid("a requested symbol does not exist");
    let first = geometry.bytes_at(run.start).ok_or_else(absent)?.start;
    let last = geometry.bytes_at(run.end.saturating_sub(1)).ok_or_else(absent)?.end;
    let size = geometry.symbol_bytes() as usize;
    let frames = (last - first) as usize + FRAME_HEAD * (run.end - run.start) as usize;
    room.resize(frames.max(room.len()), 0);
    let mut places = Vec::with_capacity((run.end - run.start) as usize);
    for (index, frame) in run.zip(room[..frames].chunks_mut(FRAME_HEAD + size)) {
        let id = geometry.symbol(index).ok_or_else(absent)?;
        let (head, symbol) = frame.split_at_mut(FRAME_HEAD);
        let whole = SymbolHead { block: id.block, esi: id.esi, length: symbol.len() as u32 };
        head.copy_from_slice(&Frame::Symbol(whole).encode());
        places.push(symbol);
    }
    store.files.read_into(first, &mut places)?;
    Ok(EncodedFrames { room, frames, symbols: last - first })
}

fn check(runs: &[(u64, u64)], symbols: u64) -> io::Result<()> {
    match are_within(runs, symbols) {
        true => Ok(()),
        false => Err(invalid("the child listed symbols that do not exist")),
    }
}

impl Queue {
    /// The next request to serve: a page, or at most `most` symbols.
    fn next(&mut self, most: u64) -> Option<ChildRequest> {
        match self.requests.pop_front()? {
            ChildRequest::Symbols(range) => {
                let end = range.end.min(range.start + most);
                if end < range.end {
                    self.requests.push_front(ChildRequest::Symbols(end..range.end));
                }
                self.symbols -= end - range.start;
                Some(ChildRequest::Symbols(range.start..end))
            }
            page => Some(page),
        }
    }
}
