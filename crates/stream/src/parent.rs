//! The local scheduler of one leg: takes frames of a stream and sends those that the leg takes in time.

use crate::{
    Bounds, Clock, LegQueue, Next, Plan, Quality, Stream,
    counts::LegCounts,
    io::{Hear, Leg, Say},
    rates::LegRate,
    status::{LegStatus, Taker},
    stream::quality,
};
use bytes::Bytes;
use std::{os::fd::OwnedFd, sync::Arc, time::Duration};
use thalweg_net::TcpInfo;
use thalweg_units::Time;
use thalweg_wire::{
    mesh::Name,
    stream::leg::{
        Ask, Ending, FrameHead, Head, Level, MAX_LATENCY, MAX_TRACKS, MAX_WORD, Said, Why, Word,
    },
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval},
};

/// How often the leg's rate is looked at; every fourth time is a report.
const TICK: Duration = Duration::from_millis(250);

/// Given to the connection at once: what it has taken cannot be left out any more.
const PIECE: usize = 8 << 10;

/// Words of a child that wait to be read.
const WORDS: usize = 16;

/// A leg that took nothing for so long gets key frames alone, until it takes something again.
const SLOW: Duration = Duration::from_secs(2);

/// What a leg serves, and whom.
pub struct Served {
    /// The stream.
    pub stream: Arc<Stream>,
    /// What was asked for.
    pub ask: Ask,
    /// The child.
    pub to: Child,
    /// What may wait for it.
    pub memory: usize,
    /// When it ends as the child takes nothing.
    pub stall: Duration,
    /// What the global scheduler says.
    pub plan: watch::Receiver<Arc<Plan>>,
    /// The node's clock.
    pub clock: Clock,
    /// Where it is counted.
    pub counts: LegCounts,
}

/// Who takes a leg's frames.
#[derive(Clone, Debug)]
pub enum Child {
    /// A program of this host.
    Local(u64),
    /// A member's node.
    Member(Name),
}

/// What is being sent.
#[derive(Default)]
struct Outgoing {
    head: Bytes,
    body: Bytes,
}

impl Outgoing {
    fn is_empty(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    /// The next piece of it.
    fn piece(&self) -> &[u8] {
        let all = if self.head.is_empty() { &self.body } else { &self.head };
        &all[..all.len().min(PIECE)]
    }

    fn advance(&mut self, n: usize) {
        let all = if self.head.is_empty() { &mut self.body } else { &mut self.head };
        bytes::Buf::advance(all, n);
    }
}

/// A leg at work.
struct Work {
    served: Served,
    queue: LegQueue,
    cursor: u64,
    number: u64,
    out: Outgoing,
    is_flushed: bool,
    rate: LegRate,
    socket: Option<OwnedFd>,
    /// What the child wants, and what holds it back here.
    wants: Quality,
    is_slow: bool,
    /// When the connection last took something, or had nothing to take.
    moved: Instant,
    looked: Instant,
    ticks: u32,
    told: (u64, u64),
    left_out: u64,
    busy: Duration,
    span: Duration,
}

/// Serves the leg until it ends; why it does. The answer has been given.
///
/// # Errors
/// The connection's.
pub async fn serve(leg: Leg, served: Served) -> std::io::Result<Ending> {
    let Leg { hear, mut say, socket } = leg;
    let (told, mut words) = mpsc::channel(WORDS);
    let mut work = Work::new(served, socket);
    // Also when this is dropped, as when the member is revoked.
    let joined = Joined { stream: Arc::clone(&work.served.stream), number: work.number };
    let reading = listen(hear, told);
    let ended = tokio::select! {
        ended = work.run(&mut say, &mut words) => ended,
        why = reading => Err(why),
    };
    drop(joined);
    if let Ok(why) = &ended {
        let bye = Head::message(&Said::End(why.clone()));
        // Whoever does not take it learns it by the connection's end.
        _ = tokio::time::timeout(Duration::from_secs(1), say.bytes(&bye)).await;
        say.close().await;
    }
    ended
}

/// A leg among those of its stream, as long as this lives.
struct Joined {
    stream: Arc<Stream>,
    number: u64,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.stream.leave(self.number);
    }
}

/// Hears the child's words; why nothing more comes.
async fn listen(mut hear: Hear, to: mpsc::Sender<Word>) -> std::io::Error {
    loop {
        match hear.message::<Word>(MAX_WORD).await {
            Ok(word) => {
                if to.send(word).await.is_err() {
                    return std::io::ErrorKind::BrokenPipe.into();
                }
            }
            Err(why) => return why,
        }
    }
}

/// Gives the connection a piece, or has it send what it still holds; how much of the piece it took. May be dropped.
async fn give(say: &mut Say, piece: &[u8]) -> std::io::Result<usize> {
    if piece.is_empty() { say.flush().await.map(|()| 0) } else { say.some(piece).await }
}

impl Work {
    fn new(served: Served, socket: Option<OwnedFd>) -> Self {
        let ask = &served.ask;
        let latency = Duration::from_millis(ask.latency_ms.into());
        let wants = quality(ask.level, &ask.tracks);
        let bounds = Bounds { latency, bytes: served.memory };
        let (to, taker) = match &served.to {
            Child::Local(number) => (format!("local-{number}"), Taker::Local),
            Child::Member(name) => (name.to_string(), Taker::Member),
        };
        let cursor = served.stream.beginning(ask.after);
        let number = served.stream.join(LegStatus::new(to, taker, wants, latency));
        let now = Instant::now();
        let mut queue = LegQueue::new(bounds, wants);
        if ask.after.is_some_and(|(_, last)| last + 1 == cursor) {
            queue.resume();
        }
        Self {
            queue,
            cursor,
            number,
            out: Outgoing::default(),
            is_flushed: true,
            rate: LegRate::default(),
            socket,
            wants,
            is_slow: false,
            moved: now,
            looked: now,
            ticks: 0,
            told: (0, 0),
            left_out: 0,
            busy: Duration::ZERO,
            span: Duration::ZERO,
            served,
        }
    }

    async fn run(
        &mut self,
        say: &mut Say,
        words: &mut mpsc::Receiver<Word>,
    ) -> std::io::Result<Ending> {
        let mut head = self.served.stream.head();
        let mut plan = self.served.plan.clone();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let run = head.borrow().run;
        self.adapt();
        loop {
            let now = head.borrow_and_update().clone();
            if now.run != run {
                return Ok(Ending::Failed("the stream began anew".to_owned()));
            }
            self.take();
            self.refill();
            if let (true, true, Some(why)) = (self.out.is_empty(), self.queue.is_empty(), now.ended)
            {
                return Ok(why);
            }
            tokio::select! {
                biased;
                _ = tick.tick() => {
                    if let Some(why) = self.tick() {
                        return Ok(why);
                    }
                }
                word = words.recv() => match word {
                    Some(Word::Bye) | None => return Ok(Ending::Over),
                    Some(word) => self.hear(word),
                },
                _ = plan.changed() => self.adapt(),
                wrote = give(say, self.out.piece()), if !(self.out.is_empty() && self.is_flushed) => {
                    self.wrote(wrote?);
                }
                _ = head.changed() => {}
            }
        }
    }

    fn latency(&self) -> Duration {
        self.queue.bounds().latency
    }

    fn now(&self) -> Time {
        self.served.clock.now()
    }

    /// Takes what is new of the stream.
    fn take(&mut self) {
        self.count_busy();
        let mut entries = Vec::new();
        if self.served.stream.take(&mut self.cursor, &mut entries) {
            self.queue.give_up();
        }
        let now = self.now();
        for entry in entries {
            self.queue.push(entry, now);
        }
    }

    /// The time since the last look counts as busy if something waited.
    fn count_busy(&mut self) {
        let passed = self.looked.elapsed();
        self.looked += passed;
        self.span += passed;
        match self.out.is_empty() && self.queue.is_empty() && self.is_flushed {
            true => self.moved = self.looked,
            false => {
                self.busy += passed;
                self.rate.busy(passed);
            }
        }
    }

    /// The next thing to be sent.
    fn refill(&mut self) {
        if !self.out.is_empty() {
            return;
        }
        let now = self.now();
        let (head, body) = match self.queue.pop(now) {
            None => return,
            Some(Next::Lost(lost)) => (Head::message(&Said::Lost(lost)), Bytes::new()),
            Some(Next::Frame(frame)) => {
                let head = FrameHead {
                    sequence: frame.sequence,
                    track: frame.frame.track,
                    class: frame.frame.class as u8,
                    time_us: u64::try_from(frame.frame.time.as_micros()).unwrap_or(u64::MAX),
                    age_us: u32::try_from(frame.age(now).as_micros()).unwrap_or(u32::MAX),
                    sent_us: self.served.clock.micros(),
                    length: frame.frame.bytes.len() as u32,
                };
                (Head::Frame(head).encode().to_vec(), frame.frame.bytes.clone())
            }
        };
        self.out = Outgoing { head: head.into(), body };
    }

    /// The connection took so much of the piece; none: all of it is on its way.
    fn wrote(&mut self, n: usize) {
        self.out.advance(n);
        self.rate.sent(n);
        self.is_flushed = n == 0;
        self.moved = Instant::now();
    }

    fn hear(&mut self, word: Word) {
        match word {
            Word::Report(report) => self.served.stream.note(self.number, |leg| {
                (leg.heard, leg.child_age_us) = (report, report.age_us);
            }),
            Word::Want { level, tracks, latency_ms } => {
                if tracks.len() > MAX_TRACKS {
                    return;
                }
                self.wants = quality(level, &tracks);
                let latency = Duration::from_millis(latency_ms.max(1).into()).min(MAX_LATENCY);
                let wants = self.wants;
                self.queue.set_bounds(Bounds { latency, bytes: self.served.memory });
                self.served.stream.note(self.number, |leg| {
                    (leg.wants, leg.latency) = (wants, latency);
                });
                self.adapt();
            }
            Word::Bye => {}
        }
    }

    /// What goes: what is wanted, but no more than the global scheduler says, and key frames alone while the child is slow.
    fn adapt(&mut self) {
        let plan = self.served.plan.borrow().clone();
        let ordered = match &self.served.to {
            Child::Local(_) => None,
            Child::Member(name) => plan.ordered(&self.served.stream.name, name).cloned(),
        };
        let mut gets = self.wants;
        let (mut why, mut estimate) = (String::new(), None);
        if let Some(ordered) = ordered {
            gets.level = gets.level.min(ordered.quality.level);
            gets.track = ordered.quality.track.or(gets.track);
            (why, estimate) = (ordered.why, ordered.estimate);
        }
        if self.is_slow {
            gets.level = Level::Keys;
            "the child takes nothing".clone_into(&mut why);
        }
        if gets != self.queue.quality() {
            self.queue.set_quality(gets);
        }
        self.served.stream.note(self.number, |leg| {
            (leg.gets, leg.why, leg.estimate) = (gets, why, estimate);
        });
    }

    /// A quarter of a second has passed; why the leg ends, if it does.
    fn tick(&mut self) -> Option<Ending> {
        self.count_busy();
        let idle = self.moved.elapsed();
        if idle > self.served.stall {
            return Some(Ending::Stalled);
        }
        if self.is_slow != (idle > SLOW) {
            self.is_slow = !self.is_slow;
            self.adapt();
        }
        self.rate.tick(self.now(), TICK);
        let limit = self.rate.rate();
        self.queue.set_path(limit, self.ahead());
        self.ticks += 1;
        if self.ticks.is_multiple_of(4) {
            self.report();
            if self.out.is_empty() && self.queue.is_empty() {
                self.out.head = Head::message(&Said::Alive).into();
            }
        }
        None
    }

    /// How long what is sent now is on its way, as far as the kernel knows: the smoothed round trip, of which the way
    /// back has no queue of ours.
    fn ahead(&self) -> Duration {
        let info = self.socket.as_ref().and_then(|socket| TcpInfo::of(socket).ok());
        let Some(info) = info.filter(|info| info.min_rtt != Duration::MAX) else {
            return Duration::ZERO;
        };
        info.rtt.saturating_sub(info.min_rtt / 2)
    }

    /// The last second's figures.
    fn report(&mut self) {
        let tally = self.queue.tally().clone();
        self.served.counts.add(&tally);
        let span = self.span.as_secs_f64().max(1e-3);
        let bps = |bytes: u64| (bytes as f64 * 8.0 / span) as u64;
        let (sent, wanted) = (tally.bytes - self.told.0, tally.wanted - self.told.1);
        self.told = (tally.bytes, tally.wanted);
        let busy = self.busy.as_secs_f64() / span;
        let delay = self.queue.delay(self.now());
        let queue_us = delay.as_micros();
        let left_out: u64 =
            [Why::Late, Why::Room].iter().filter_map(|why| tally.dropped.get(why)).flatten().sum();
        let is_behind = busy > 0.9 && delay > self.latency() / 3;
        let is_limited = left_out > self.left_out || is_behind;
        self.left_out = left_out;
        let tcp = self.socket.as_ref().and_then(|socket| TcpInfo::of(socket).ok());
        let (limit, queue_bytes) = (self.rate.rate(), self.queue.bytes() as u64);
        self.served.stream.note(self.number, |leg| {
            leg.is_limited = is_limited;
            (leg.sent_bps, leg.wanted_bps, leg.busy) = (bps(sent), bps(wanted), busy);
            (leg.sent, leg.dropped) = (tally.sent, tally.dropped);
            leg.queue_us = u32::try_from(queue_us).unwrap_or(u32::MAX);
            leg.queue_bytes = queue_bytes;
            leg.limit_bps = limit.map(|rate| rate.as_bps());
            leg.rtt_us = tcp.map(|info| info.rtt.as_micros() as u64);
            leg.retransmitted = tcp.map_or(0, |info| info.retransmitted);
        });
        (self.busy, self.span) = (Duration::ZERO, Duration::ZERO);
    }
}
