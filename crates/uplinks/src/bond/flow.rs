//! One stream of a bond, in both directions, as the bond's state keeps it.

use super::{
    memory::{Memory, MemoryLease},
    outbox::Outbox,
};
use bytes::Bytes;
use std::{
    ops::Range,
    task::{Context, Poll, Waker},
};
use thalweg_bond::{Acks, Chunk, Link, Reorder, SendAllowance, Sender, SenderSettings};
use thalweg_units::Time;
use thalweg_wire::bond::{BondMessage, MAX_RANGES, Refusal, Target};

/// Bytes of a stream that wait here to be sent or acknowledged, at most: a quarter of a second at 500 Mbit/s, including
/// the round trips of unequal links.
pub const OUTBOX: u64 = 16 << 20;

/// Bytes that may wait in each direction when a stream begins. The limits double whenever the stream turns out to need
/// more, as TCP's own buffers grow.
pub const FIRST: u64 = 256 << 10;

/// Which end opened a stream, and how far the opening has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpeningState {
    /// Opened here; the far end has not confirmed it yet.
    Requested(Target),
    /// Opened here, and confirmed by the far end.
    Confirmed,
    /// Opened by the far end; nobody here has taken it yet.
    Offered,
    /// Opened by the far end; being connected to its target here.
    Connecting,
    /// Opened by the far end, and confirmed here.
    Accepted,
}

/// Why a stream carries nothing any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The far end refused it.
    Refused(Refusal),
    /// One end reset it.
    Reset(String),
}

/// The state of a stream.
#[derive(Debug)]
pub struct Flow {
    pub opening: OpeningState,
    /// Which bytes are to be sent, under way or acknowledged.
    pub sender: Sender,
    /// Its next chunk waits for a better link than an idle one.
    pub waits: bool,
    outbox: Outbox,
    /// The application writes no more.
    ended: bool,
    /// The far end has all bytes, and knows that these are all.
    end_known: bool,
    /// The received chunks, put in order.
    reorder: Reorder,
    current: Bytes,
    pub broken: Option<StreamError>,
    /// The application dropped it.
    pub is_released: bool,
    /// The messages that are due to the far end.
    pub due: DueMessages,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The limit that the far end was last told.
    announced_limit: u64,
    /// The receive window at most, bytes.
    most: u64,
    /// Bytes read by the application since the window grew.
    read: u64,
    /// Limits the bytes that wait to be sent or acknowledged.
    room: SendAllowance,
    /// The memory that window and room take; `None` if there was none left.
    held: Option<MemoryLease>,
}

/// Messages that are due to be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DueMessages {
    pub opening: bool,
    pub acks: bool,
    pub end: bool,
    pub reset: bool,
}

impl DueMessages {
    fn any(self) -> bool {
        self.opening || self.acks || self.end || self.reset
    }
}

impl Flow {
    /// Creates a stream of which the far end takes `theirs` bytes at first, and this end `ours` at most.
    ///
    /// If no memory is left for it, it is broken from the start.
    pub fn new(
        opening: OpeningState,
        settings: SenderSettings,
        theirs: u64,
        ours: u64,
        memory: &Memory,
    ) -> Self {
        let due = DueMessages {
            opening: matches!(opening, OpeningState::Requested(_)),
            ..DueMessages::default()
        };
        let first = ours.min(FIRST);
        let held = memory.take(first + FIRST);
        let broken = held.is_none().then_some(StreamError::Refused(Refusal::Busy));
        let due = DueMessages { reset: broken.is_some(), ..due };
        Self {
            sender: Sender::new(settings, theirs),
            waits: false,
            outbox: Outbox::default(),
            ended: false,
            end_known: false,
            reorder: Reorder::new(first),
            current: Bytes::new(),
            // It is never offered, so nobody will drop it.
            is_released: broken.is_some() && opening == OpeningState::Offered,
            broken,
            opening,
            due,
            reader: None,
            writer: None,
            announced_limit: first,
            most: ours,
            read: 0,
            room: SendAllowance::new(FIRST, OUTBOX),
            held,
        }
    }

    /// Takes the next message that is due.
    pub fn take_message(&mut self, stream: u32) -> Option<BondMessage> {
        if !self.due.any() {
            return None;
        }
        if std::mem::take(&mut self.due.opening) {
            return Some(match &self.opening {
                OpeningState::Requested(to) => BondMessage::Open { stream, to: to.clone() },
                _ => BondMessage::Opened { stream },
            });
        }
        if std::mem::take(&mut self.due.reset) {
            return Some(match &self.broken {
                Some(StreamError::Refused(why)) => {
                    BondMessage::Refused { stream, why: why.clone() }
                }
                Some(StreamError::Reset(why)) => BondMessage::Reset { stream, why: why.clone() },
                None => BondMessage::Reset { stream, why: "it ended".to_owned() },
            });
        }
        if std::mem::take(&mut self.due.end) {
            return Some(BondMessage::End { stream, at: self.written() });
        }
        self.due.acks = false;
        let Acks { arrived, ranges, limit } = self.reorder.acks(MAX_RANGES);
        self.announced_limit = limit;
        let ranges = ranges.into_iter().map(|range| (range.start, range.end)).collect();
        let ended = self.reorder.is_complete();
        Some(BondMessage::Acks { stream, arrived, limit, ranges, ended })
    }

    /// A link is gone, and perhaps messages with it: repeats those that may have been lost.
    pub fn repeat_messages(&mut self) {
        self.due.opening |=
            matches!(self.opening, OpeningState::Requested(_) | OpeningState::Accepted);
        self.due.acks = true;
        self.due.end |= self.ended && !self.end_known;
        self.due.reset |= self.broken.is_some();
    }

    fn written(&self) -> u64 {
        self.sender.written()
    }

    /// Appends the bytes of a chunk to a frame.
    pub fn copy(&self, chunk: Chunk, to: &mut Vec<u8>) {
        self.outbox.copy(chunk, to);
    }

    /// Records that a chunk was given to a link.
    pub fn record_assignment(&mut self, chunk: Chunk, link: &Link, now: Time) {
        self.sender.record_assignment(chunk, link, now);
    }

    /// Takes a chunk that arrived.
    ///
    /// # Errors
    /// The far end violates the protocol.
    pub fn chunk(&mut self, offset: u64, bytes: Bytes) -> Result<(), String> {
        self.reorder.accept(offset, bytes).map_err(|why| why.to_string())?;
        self.due.acks = true;
        if self.is_released {
            while self.reorder.pop().is_some() {}
        }
        wake(&mut self.reader);
        Ok(())
    }

    /// The far end says where the stream ends.
    ///
    /// # Errors
    /// The far end violates the protocol.
    pub fn ends_at(&mut self, at: u64) -> Result<(), String> {
        self.reorder.ends_at(at).map_err(|why| why.to_string())?;
        self.due.acks = true;
        wake(&mut self.reader);
        Ok(())
    }

    /// Takes the far end's acknowledgements; returns the chunks that they free.
    ///
    /// # Errors
    /// They acknowledge what was never sent.
    pub fn acks(
        &mut self,
        arrived: u64,
        limit: u64,
        ranges: &[Range<u64>],
        ended: bool,
    ) -> Result<Vec<thalweg_bond::ReleasedChunk>, String> {
        let freed = self.sender.acknowledge(arrived, ranges).map_err(|why| why.to_string())?;
        self.sender.raise_limit(limit);
        self.outbox.forget(self.sender.arrived());
        self.room.record_drained(self.outbox.len() as u64);
        self.end_known |= ended && self.ended;
        wake(&mut self.writer);
        Ok(freed)
    }

    /// Ends the stream here, in both directions, without telling the far end.
    pub fn break_off(&mut self, why: StreamError) {
        self.broken.get_or_insert(why);
        wake(&mut self.reader);
        wake(&mut self.writer);
    }

    /// Whether this end waits for nothing of it any more.
    pub fn is_over(&self) -> bool {
        let is_done = self.ended && self.end_known && self.reorder.is_complete();
        self.is_released && !self.due.any() && (self.broken.is_some() || is_done)
    }

    /// Reads for the application.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.current.is_empty() {
            self.current = self.reorder.pop().unwrap_or_default();
        }
        if !self.current.is_empty() {
            let count = self.current.len().min(buf.remaining());
            buf.put_slice(&self.current.split_to(count));
            self.read += count as u64;
            self.widen();
            // The sender is told of room in steps of a quarter of the window.
            self.due.acks |=
                (self.reorder.limit() - self.announced_limit) * 4 >= self.reorder.capacity();
            return Poll::Ready(Ok(()));
        }
        if self.reorder.is_done() {
            return Poll::Ready(Ok(()));
        }
        if let Some(broken) = &self.broken {
            return Poll::Ready(Err(broken.error()));
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Doubles the window once the application has read half of it, if there is memory for that.
    fn widen(&mut self) {
        let capacity = self.reorder.capacity();
        let more = capacity.min(self.most.saturating_sub(capacity));
        if more > 0
            && self.read * 2 >= capacity
            && self.held.as_mut().is_some_and(|held| held.grow(more))
        {
            self.reorder.widen(capacity + more);
            self.read = 0;
        }
    }

    /// Doubles the room for unacknowledged bytes if most of them are under way, and if there is memory for that.
    /// Whether it grew.
    fn more_room(&mut self) -> bool {
        let more = self.room.growth(self.sender.backlog());
        let grows = more > 0 && self.held.as_mut().is_some_and(|held| held.grow(more));
        self.room.grow(if grows { more } else { 0 });
        grows
    }

    /// Bytes that are still to be sent, as far as that can be known.
    pub fn expected_bytes(&self) -> u64 {
        self.room.expected_bytes(self.sender.backlog(), self.sender.arrived())
    }

    /// Writes for the application.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        if let Some(broken) = &self.broken {
            return Poll::Ready(Err(broken.error()));
        }
        if self.ended {
            return Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()));
        }
        let waiting = self.outbox.len() as u64;
        if self.room.remaining(waiting) == 0 && !self.more_room() {
            self.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = bytes.len().min(self.room.remaining(waiting) as usize);
        self.outbox.push(&bytes[..count]);
        self.sender.record_write(count as u64);
        Poll::Ready(Ok(count))
    }

    /// The application writes no more.
    pub fn end(&mut self) {
        if !self.ended {
            (self.ended, self.due.end) = (true, true);
            self.room.finish();
        }
    }

    /// Waits until the far end has all that was written, and the end.
    pub fn poll_settled(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.end_known {
            return Poll::Ready(Ok(()));
        }
        if let Some(broken) = &self.broken {
            return Poll::Ready(Err(broken.error()));
        }
        self.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Waits until the far end confirms or refuses the stream.
    pub fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        if let Some(broken) = &self.broken {
            return Poll::Ready(Err(broken.clone()));
        }
        if !matches!(self.opening, OpeningState::Requested(_)) {
            return Poll::Ready(Ok(()));
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The far end confirmed the stream.
    pub fn confirm(&mut self) {
        if matches!(self.opening, OpeningState::Requested(_)) {
            self.opening = OpeningState::Confirmed;
            wake(&mut self.reader);
        }
    }

    /// The stream is being connected to its target here, so it is not offered again.
    pub fn begin_connecting(&mut self) {
        if self.opening == OpeningState::Offered {
            self.opening = OpeningState::Connecting;
        }
    }

    /// Refuses the stream because there are too many: the far end is told, and it takes no memory.
    pub fn refuse(&mut self) {
        self.held = None;
        self.break_off(StreamError::Refused(Refusal::Busy));
        (self.due.reset, self.is_released) = (true, true);
    }

    /// Confirms the stream to the far end.
    pub fn accept(&mut self) {
        if self.broken.is_none()
            && matches!(self.opening, OpeningState::Offered | OpeningState::Connecting)
        {
            (self.opening, self.due.opening) = (OpeningState::Accepted, true);
        }
    }

    /// Breaks the stream, and tells the far end.
    pub fn reset(&mut self, why: StreamError) {
        if self.broken.is_none() {
            self.break_off(why);
            self.due.reset = true;
        }
    }

    /// The application dropped it: what it wrote is still sent, what arrives is discarded.
    pub fn release(&mut self) {
        self.is_released = true;
        if self.broken.is_some() {
            // An `End` after a reset could be taken for a regular end.
            return;
        }
        self.end();
        if !self.reorder.is_done() {
            self.reset(StreamError::Reset("the stream is no longer read".to_owned()));
        }
    }

    /// Bytes that were received in order.
    pub fn received(&self) -> u64 {
        self.reorder.acks(0).arrived
    }
}

/// The stream's state as text, for debugging.
impl Flow {
    pub(super) fn describe(&self) -> String {
        let sender = &self.sender;
        let due = &self.due;
        format!(
            "{} of {} bytes arrived there, {} wait, window {}; {} were received in order; due \
             {due:?}",
            sender.arrived(),
            sender.written(),
            sender.backlog(),
            sender.window(),
            self.received(),
        )
    }
}

impl StreamError {
    /// The same, as the application's reads and writes report it.
    pub fn error(&self) -> std::io::Error {
        match self {
            Self::Refused(why) => {
                std::io::Error::new(std::io::ErrorKind::ConnectionRefused, why.to_string())
            }
            Self::Reset(why) => {
                std::io::Error::new(std::io::ErrorKind::ConnectionReset, why.clone())
            }
        }
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}
