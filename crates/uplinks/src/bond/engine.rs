//! A running bond: its state under a lock, and a reader and a writer for each link.

use super::{
    flow::{Flow, StreamError},
    gauge::Gauge,
    link::{LinkIo, Meter},
    memory::Memory,
    state::{LinkState, NewLink, Settings, State},
    status::LinkStatus,
    stream::BondStream,
};
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    future::{pending, poll_fn},
    io,
    sync::Arc,
    time::Duration,
};
use thalweg_bond::LinkId;
use thalweg_units::Time;
use thalweg_wire::{
    bond::{BondMessage, FRAME_HEAD, Frame, Refusal, Target},
    object,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::tcp::OwnedWriteHalf,
    sync::Notify,
    time::{Instant, MissedTickBehavior, interval, timeout},
};

/// How often links are checked while streams are open: a fifth of the shortest silence.
const TICK: Duration = Duration::from_millis(20);

/// The body of a frame must arrive within this time after its head, or the link is given up.
const WHOLE: Duration = Duration::from_secs(60);

/// Bytes that the streams of a bond dialled by this host may hold: 16 streams at their fastest.
pub(super) const MEMORY: u64 = 512 << 20;

/// A running bond.
#[derive(Debug)]
pub struct Engine {
    state: Mutex<State>,
    began: Instant,
    /// Notified of streams that the far end opened, and of the bond's end.
    offered: Notify,
    /// Notified when a stream is opened, so that the watch over links begins.
    busy: Notify,
    /// Notified when a link is found silent.
    silent: Notify,
}

/// Why a link ended.
#[derive(Debug)]
pub enum LinkEnd {
    Lost(io::Error),
    /// An end stopped using it.
    Bye,
    /// The far end violates the protocol: the whole bond is broken.
    Hostile(String),
}

impl Engine {
    /// Creates a bond without links. `theirs`: bytes that the far end holds of each stream at first.
    pub fn new(settings: Settings, theirs: u64, has_dialled: bool) -> Arc<Self> {
        Self::within(settings, theirs, has_dialled, Memory::new(MEMORY))
    }

    /// As [`Self::new`], but streams hold no more than `memory` has.
    pub fn within(settings: Settings, theirs: u64, has_dialled: bool, memory: Memory) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State::new(settings, theirs, has_dialled, memory)),
            began: Instant::now(),
            offered: Notify::new(),
            busy: Notify::new(),
            silent: Notify::new(),
        })
    }

    fn now(&self) -> Time {
        Time::ZERO + self.began.elapsed()
    }

    /// Runs `act` on a stream, then gives idle links what there is to send. `None`: there is no such stream.
    pub fn with<T>(&self, stream: u32, act: impl FnOnce(&mut Flow) -> T) -> Option<T> {
        let mut state = self.state.lock();
        let done = state.flows.get_mut(&stream).map(act);
        state.dispatch(self.now());
        done
    }

    /// Takes the window from a link's greeting: how much of each stream the far end holds at first.
    pub(super) fn set_far_window(&self, window: u64) {
        let mut state = self.state.lock();
        state.theirs = window;
        // Streams may have been opened before the first link came up.
        state.flows.values_mut().for_each(|flow| flow.sender.raise_limit(window));
    }

    /// Bytes of a new stream that this end holds at first.
    pub(super) fn window(&self) -> u64 {
        self.state.lock().settings.first_window()
    }

    /// Bytes of chunks that each link was given so far.
    pub fn sent(&self) -> BTreeMap<LinkId, u64> {
        self.state.lock().links.iter().map(|(id, link)| (*id, link.sent)).collect()
    }

    /// The shortest round trip of the links that answer.
    pub fn round_trip(&self) -> Option<Duration> {
        let state = self.state.lock();
        let alive = state.links.values().filter(|link| !link.is_silent);
        alive.map(LinkState::round_trip).filter(|rtt| !rtt.is_zero()).min()
    }

    /// The status of the links.
    pub fn links(&self) -> Vec<LinkStatus> {
        self.state.lock().links(self.now())
    }

    /// What links and streams wait for, as text, to find the cause of a standstill.
    pub fn describe(&self) -> String {
        self.state.lock().describe(self.now())
    }

    /// Streams that are open, or not settled yet.
    pub fn streams(&self) -> usize {
        self.state.lock().flows.len()
    }

    /// The application dropped a stream.
    pub fn release(&self, stream: u32) {
        self.with(stream, Flow::release);
        self.state.lock().remove_ended();
    }

    /// Opens a stream to `to`, and waits for the far end's confirmation.
    ///
    /// # Errors
    /// Why the stream was not opened.
    pub async fn open(self: &Arc<Self>, to: Target) -> Result<BondStream, StreamError> {
        let opened = self.state.lock().open(to, self.now());
        let stream = BondStream::new(Arc::clone(self), opened.map_err(StreamError::Reset)?);
        self.busy.notify_one();
        let no = stream.number();
        let gone = || Err(StreamError::Reset("the bond ended".to_owned()));
        poll_fn(|cx| {
            self.with(no, |flow| flow.poll_open(cx)).unwrap_or(std::task::Poll::Ready(gone()))
        })
        .await?;
        Ok(stream)
    }

    /// The next stream that the far end opened, with its target; `None` once the bond is broken.
    pub async fn next(&self) -> Option<(u32, Target)> {
        loop {
            let told = self.offered.notified();
            {
                let mut state = self.state.lock();
                if let Some((stream, to)) = state.offered.pop_front() {
                    // Its `Open` message may be repeated before it is accepted; it must not be offered twice.
                    state.flows.get_mut(&stream).map(Flow::begin_connecting);
                    return Some((stream, to));
                }
                if state.broken.is_some() {
                    return None;
                }
            }
            told.await;
        }
    }

    /// Confirms a stream from [`Self::next`].
    pub fn accept(self: &Arc<Self>, stream: u32) -> BondStream {
        self.with(stream, Flow::accept);
        self.busy.notify_one();
        BondStream::new(Arc::clone(self), stream)
    }

    /// Refuses a stream from [`Self::next`].
    pub fn refuse(&self, stream: u32, why: Refusal) {
        self.with(stream, |flow| flow.reset(StreamError::Refused(why.cut())));
        self.release(stream);
    }

    /// Breaks the bond: nothing is carried any more. The first reason is kept.
    pub fn break_off(&self, why: &str) {
        let mut state = self.state.lock();
        state.broken.get_or_insert_with(|| why.to_owned());
        let broken = || StreamError::Reset(why.to_owned());
        state.flows.values_mut().for_each(|flow| flow.break_off(broken()));
        for link in state.links.values() {
            link.wake.notify_one();
            // The writer may wait for room that never comes.
            link.gone.notify_one();
        }
        drop(state);
        self.offered.notify_one();
        // This also wakes and ends the watch of a bond without streams.
        self.busy.notify_one();
    }

    /// Runs one link until it ends. The bond goes on without it.
    pub async fn run_link(&self, id: LinkId, link: LinkIo) -> LinkEnd {
        self.run_link_until(id, link, pending()).await
    }

    /// As [`Self::run_link`], but also ends when `stop` completes: the link may not be used any more.
    pub async fn run_link_until(
        &self,
        id: LinkId,
        link: LinkIo,
        stop: impl Future<Output = ()>,
    ) -> LinkEnd {
        let LinkIo { mut read, mut write, socket, may_duplicate, interface, via, .. } = link;
        let (beyond, meter) = (link.beyond, link.meter.as_ref());
        let gauge = match Gauge::new(socket) {
            Ok(gauge) => Arc::new(gauge),
            Err(why) => return LinkEnd::Lost(why),
        };
        let joining = NewLink { gauge: Arc::clone(&gauge), may_duplicate, interface, via, beyond };
        let (wake, gone) = self.state.lock().join(id, joining, self.now());
        let ended = tokio::select! {
            ended = self.read_frames(id, &mut read, (&gauge, meter)) => ended,
            ended = self.write_frames(id, (&mut write, meter), &gauge, &wake) => LinkEnd::Lost(ended),
            () = stop => LinkEnd::Bye,
            () = gone.notified() => LinkEnd::Bye,
            () = keep_counts(meter, &gauge) => LinkEnd::Bye,
        };
        if let Some(meter) = meter {
            meter.ends(&gauge);
        }
        self.state.lock().leave(id, self.now());
        if let LinkEnd::Hostile(why) = &ended {
            self.break_off(why);
        }
        ended
    }

    async fn write_frames(
        &self,
        id: LinkId,
        (write, meter): (&mut OwnedWriteHalf, Option<&Meter>),
        gauge: &Gauge,
        wake: &Notify,
    ) -> io::Error {
        loop {
            if let Some(Err(why)) = wait_for_allowance(meter).await {
                return why;
            }
            if let Err(why) = gauge.room().await {
                return why;
            }
            let Some((work, twice)) = self.next_frame(id, wake).await else {
                return io::Error::other("the bond ended");
            };
            if let Err(why) = write.write_all(&work).await {
                return why;
            }
            if let Some(meter) = meter {
                meter.moved(work.len(), gauge);
                meter.sent_twice(twice);
            }
        }
    }

    /// The next frame for a link to carry, and how many bytes of it another link carries as well. `None`: nothing will
    /// follow.
    async fn next_frame(&self, id: LinkId, wake: &Notify) -> Option<(Vec<u8>, u64)> {
        {
            let mut state = self.state.lock();
            state.links.get_mut(&id)?.is_idle = true;
            state.dispatch(self.now());
        }
        loop {
            let told = wake.notified();
            {
                let mut state = self.state.lock();
                if state.broken.is_some() {
                    return None;
                }
                let link = state.links.get_mut(&id)?;
                if let Some(work) = link.work.take() {
                    return Some((work, std::mem::take(&mut link.twice)));
                }
            }
            told.await;
        }
    }

    async fn read_frames(
        &self,
        id: LinkId,
        read: &mut super::link::LinkReader,
        (gauge, meter): (&Gauge, Option<&Meter>),
    ) -> LinkEnd {
        loop {
            if let Some(Err(why)) = wait_for_allowance(meter).await {
                return LinkEnd::Lost(why);
            }
            match (self.read_frame(id, read).await, meter) {
                (Ok(length), Some(meter)) => meter.moved(length, gauge),
                (Ok(_), None) => {}
                (Err(ended), _) => return ended,
            }
        }
    }

    /// Reads and handles one frame; returns its length.
    async fn read_frame(
        &self,
        id: LinkId,
        read: &mut super::link::LinkReader,
    ) -> Result<usize, LinkEnd> {
        let mut head = [0; FRAME_HEAD];
        read.read_exact(&mut head).await.map_err(LinkEnd::Lost)?;
        let hostile = |why: &dyn std::fmt::Display| LinkEnd::Hostile(why.to_string());
        match Frame::decode(head).map_err(|why| hostile(&why))? {
            Frame::Chunk(head) => {
                let length = head.length as usize;
                let bytes = body(read, length).await?;
                let done = self.state.lock().chunk(id, head, bytes, self.now());
                done.map(|()| FRAME_HEAD + length).map_err(LinkEnd::Hostile)
            }
            Frame::Message(length) => {
                let bytes = body(read, length).await?;
                let message =
                    object::decode::<BondMessage>(&bytes).map_err(|why| hostile(&why))?.cut();
                if matches!(message, BondMessage::Bye) {
                    return Err(LinkEnd::Bye);
                }
                if !message.is_sound() {
                    return Err(hostile(&"a message's numbers are out of order"));
                }
                let is_open = matches!(message, BondMessage::Open { .. });
                self.state
                    .lock()
                    .handle_message(id, message, self.now())
                    .map_err(LinkEnd::Hostile)?;
                if is_open {
                    self.offered.notify_one();
                }
                Ok(FRAME_HEAD + length)
            }
        }
    }

    /// Returns when a link is found silent. It wakes one caller.
    pub(super) async fn wait_for_silence(&self) {
        self.silent.notified().await;
    }

    /// Checks the links regularly while there are streams; returns once the bond is broken.
    pub async fn watch(&self) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_busy = {
                let state = self.state.lock();
                if state.broken.is_some() {
                    return;
                }
                !state.flows.is_empty()
            };
            if is_busy {
                ticks.tick().await;
                if self.state.lock().watch(self.now()) {
                    self.silent.notify_one();
                }
            } else {
                self.busy.notified().await;
            }
        }
    }
}

/// Keeps the meter's counts up to date; never returns.
async fn keep_counts(meter: Option<&Meter>, gauge: &Gauge) {
    match meter {
        Some(meter) => meter.keep(gauge).await,
        None => pending().await,
    }
}

async fn wait_for_allowance(meter: Option<&Meter>) -> Option<io::Result<()>> {
    match meter {
        Some(meter) => Some(meter.wait_to_move().await),
        None => None,
    }
}

async fn body(read: &mut super::link::LinkReader, length: usize) -> Result<Bytes, LinkEnd> {
    let mut bytes = BytesMut::zeroed(length);
    let whole = timeout(WHOLE, read.read_exact(&mut bytes)).await;
    whole.map_err(|_| LinkEnd::Lost(io::ErrorKind::TimedOut.into()))?.map_err(LinkEnd::Lost)?;
    Ok(bytes.freeze())
}
