//! The local scheduler of one leg: sends those frames of a stream that the leg can deliver in time.

use crate::{
    Bounds, Clock, LegQueue, NextItem, Plan, Quality, Stream,
    counts::LegCounts,
    io::{Leg, LegReader, LegWriter, end_leg},
    leg_rate::LegRate,
    status::{ChildKind, LegStatus},
    stream::requested_quality,
};
use bytes::Bytes;
use std::{fmt, os::fd::OwnedFd, sync::Arc, time::Duration};
use thalweg_base::token_bucket::Bucket;
use thalweg_net::TcpInfo;
use thalweg_units::{Rate, Time};
use thalweg_wire::{
    mesh::Name,
    stream::leg::{
        ChildMessage, DropReason, Ending, FrameHead, Head, Level, MAX_CHILD_MESSAGE, MAX_LATENCY,
        MAX_TRACKS, ParentMessage, SubscribeRequest,
    },
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval, sleep},
};

/// How often the leg's rate is sampled; every fourth tick updates the status.
const TICK: Duration = Duration::from_millis(250);

/// The most bytes written at once, because written bytes cannot be dropped any more.
const PIECE: usize = 8 << 10;

/// A frame whose write began and that is this much older than the leg's latency ends the connection to a member: it
/// cannot be dropped any more, and all later frames wait for it. The member connects again and gets the newest ones.
const MAX_OVERDUE: Duration = Duration::from_secs(5);

/// The most received messages of a child that wait to be handled.
const MAX_UNREAD: usize = 16;

/// The most messages of a child in a second, and at once. A child sends a report each second, and changed requests.
const MAX_MESSAGE_RATE: u64 = 32;

/// The most changed requests that are applied between two ticks; of later ones the last is applied at the next tick.
const MAX_CHANGES: u32 = 1;

/// The time within which a new plan for a changed request arrives, unless the plan stays the same.
const REPLAN: Duration = Duration::from_secs(5);

/// A leg without progress for this long, and for half of its latency, gets only key frames until it makes progress again.
const SLOW: Duration = Duration::from_secs(2);

/// The parameters of a leg.
pub struct LegContext {
    pub stream: Arc<Stream>,
    /// The child's request.
    pub request: SubscribeRequest,
    pub to: Child,
    /// The maximum size of the queue, bytes.
    pub memory: usize,
    /// A leg without progress for this long ends.
    pub stall: Duration,
    /// The global scheduler's plan.
    pub plan: watch::Receiver<Arc<Plan>>,
    /// The node's clock.
    pub clock: Clock,
    /// The leg's metrics.
    pub counts: LegCounts,
}

/// The receiver of a leg's frames.
#[derive(Clone, Debug)]
pub enum Child {
    /// A program of this host, by the number of its connection.
    Local(u64),
    /// A member's node.
    Member(Name),
}

impl fmt::Display for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(number) => write!(f, "local-{number}"),
            Self::Member(name) => write!(f, "{name}"),
        }
    }
}

/// The item that is being sent.
#[derive(Default)]
struct OutgoingItem {
    head: Bytes,
    body: Bytes,
    /// When the connection is given up if the item is not written; `None`: never.
    overdue: Option<Time>,
}

impl OutgoingItem {
    fn is_empty(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    /// The next bytes to write, at most [`PIECE`].
    fn piece(&self) -> &[u8] {
        let all = if self.head.is_empty() { &self.body } else { &self.head };
        &all[..all.len().min(PIECE)]
    }

    fn advance(&mut self, n: usize) {
        let all = if self.head.is_empty() { &mut self.body } else { &mut self.head };
        bytes::Buf::advance(all, n);
    }
}

/// The scheduler of a leg.
struct LegScheduler {
    context: LegContext,
    queue: LegQueue,
    cursor: u64,
    number: u64,
    out: OutgoingItem,
    is_flushed: bool,
    rate: LegRate,
    socket: Option<OwnedFd>,
    /// The quality that the child requests.
    wants: Quality,
    /// A new level that is not reported to the child yet.
    new_level: Option<Level>,
    /// When the child changed its request. Until a newer plan arrives, or [`REPLAN`] is over, the rendition in the plan
    /// belongs to the earlier request.
    requested: Option<Instant>,
    /// Whether this node chose among renditions when it last set the quality.
    chooses: bool,
    is_slow: bool,
    /// How many changed requests may be applied before the next tick; the last one beyond is postponed.
    changes_left: u32,
    postponed: Option<ChildMessage>,
    /// When the connection last accepted bytes, or had none to send.
    last_progress: Instant,
    checked: Instant,
    ticks: u32,
    reported: (u64, u64),
    dropped: u64,
    busy: Duration,
    span: Duration,
}

/// Serves the leg after its opening until it ends or `right_lost` completes, and returns the reason.
///
/// # Errors
/// When the connection fails.
pub async fn serve(
    leg: Leg,
    context: LegContext,
    right_lost: impl Future<Output = ()>,
) -> std::io::Result<Ending> {
    let Leg { mut reader, mut writer, socket } = leg;
    let (sender, mut messages) = mpsc::channel(MAX_UNREAD);
    let mut scheduler = LegScheduler::new(context, socket);
    // A guard, because this future is dropped when the member is revoked.
    let registration =
        Registration { stream: Arc::clone(&scheduler.context.stream), number: scheduler.number };
    let reading = read_messages(&mut reader, sender);
    let ended = tokio::select! {
        ended = scheduler.run(&mut writer, &mut messages) => ended,
        why = reading => Err(why),
        () = right_lost => Ok(Ending::Revoked),
    };
    drop(registration);
    scheduler.context.counts.add(scheduler.queue.tally());
    if let Ok(why) = &ended {
        end_leg(&mut reader, &mut writer, why).await;
    }
    ended
}

/// The registration of a leg with its stream; removed on drop.
struct Registration {
    stream: Arc<Stream>,
    number: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.stream.remove_leg(self.number);
    }
}

/// Reads the child's messages until the connection fails.
async fn read_messages(reader: &mut LegReader, to: mpsc::Sender<ChildMessage>) -> std::io::Error {
    let now = || Instant::now().into_std();
    // The bucket counts bytes, and here a byte stands for a message.
    let mut rate =
        Bucket::new(Rate::from_bps(8 * MAX_MESSAGE_RATE), MAX_MESSAGE_RATE as usize, now());
    loop {
        match reader.read_message::<ChildMessage>(MAX_CHILD_MESSAGE).await {
            Ok(message) => {
                sleep(rate.take(1, now())).await;
                if to.send(message).await.is_err() {
                    return std::io::ErrorKind::BrokenPipe.into();
                }
            }
            Err(why) => return why,
        }
    }
}

/// Writes a piece and returns how many bytes were accepted; flushes if the piece is empty. Cancel-safe.
async fn write_piece(writer: &mut LegWriter, piece: &[u8]) -> std::io::Result<usize> {
    if piece.is_empty() { writer.flush().await.map(|()| 0) } else { writer.write_some(piece).await }
}

impl LegScheduler {
    fn new(context: LegContext, socket: Option<OwnedFd>) -> Self {
        let request = &context.request;
        let latency = Duration::from_millis(request.latency_ms.into());
        let wants = requested_quality(request.level, &request.tracks);
        let bounds = Bounds { latency, bytes: context.memory };
        let kind = match context.to {
            Child::Local(_) => ChildKind::Local,
            Child::Member(_) => ChildKind::Member,
        };
        let cursor = context.stream.start_after(request.after);
        let status = LegStatus::new(context.to.to_string(), kind, wants, latency);
        let number = context.stream.add_leg(LegStatus { tracks: request.tracks.clone(), ..status });
        let now = Instant::now();
        let mut queue = LegQueue::new(bounds, wants);
        queue.set_tracks(&request.tracks);
        if request.after.is_some_and(|(_, last)| last + 1 == cursor) {
            queue.resume();
        }
        Self {
            queue,
            cursor,
            number,
            out: OutgoingItem::default(),
            is_flushed: true,
            rate: LegRate::default(),
            socket,
            wants,
            new_level: None,
            requested: None,
            chooses: true,
            is_slow: false,
            changes_left: MAX_CHANGES,
            postponed: None,
            last_progress: now,
            checked: now,
            ticks: 0,
            reported: (0, 0),
            dropped: 0,
            busy: Duration::ZERO,
            span: Duration::ZERO,
            context,
        }
    }

    async fn run(
        &mut self,
        writer: &mut LegWriter,
        messages: &mut mpsc::Receiver<ChildMessage>,
    ) -> std::io::Result<Ending> {
        let mut head = self.context.stream.progress();
        let mut plan = self.context.plan.clone();
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let run = head.borrow().run;
        self.update_quality();
        loop {
            let now = head.borrow_and_update().clone();
            if now.run != run {
                return Ok(Ending::Failed("the stream was restarted".to_owned()));
            }
            self.take_new_entries();
            if now.ended.is_some() {
                self.queue.release(None, self.now());
            }
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
                    if self.is_overdue() {
                        return Err(std::io::ErrorKind::TimedOut.into());
                    }
                }
                message = messages.recv() => match message {
                    Some(ChildMessage::Bye) | None => return Ok(Ending::Over),
                    Some(message) => self.handle_message(message),
                },
                _ = plan.changed() => {
                    self.requested = None;
                    self.update_quality();
                }
                written = write_piece(writer, self.out.piece()), if !(self.out.is_empty() && self.is_flushed) => {
                    self.record_write(written?);
                }
                _ = head.changed() => {}
            }
        }
    }

    fn latency(&self) -> Duration {
        self.queue.bounds().latency
    }

    fn now(&self) -> Time {
        self.context.clock.now()
    }

    /// Moves the stream's new entries to the queue.
    fn take_new_entries(&mut self) {
        self.count_busy();
        let mut entries = Vec::new();
        if self.context.stream.read_entries(&mut self.cursor, &mut entries) {
            self.queue.break_chains();
        }
        let now = self.now();
        for entry in entries {
            self.queue.push(entry, now);
        }
    }

    /// Counts the time since the last call as busy if something was waiting to be sent.
    fn count_busy(&mut self) {
        let passed = self.checked.elapsed();
        self.checked += passed;
        self.span += passed;
        match self.out.is_empty() && self.queue.is_empty() && self.is_flushed {
            true => self.last_progress = self.checked,
            false => {
                self.busy += passed;
                self.rate.add_busy(passed);
            }
        }
    }

    /// Takes the next item from the queue once the last one is written.
    fn refill(&mut self) {
        if !self.out.is_empty() {
            return;
        }
        if let Some(level) = self.new_level.take() {
            self.out.head = Head::encode_message(&ParentMessage::Level(level)).into();
            return;
        }
        let now = self.now();
        let (head, body, overdue) = match self.queue.pop(now) {
            None => return,
            Some(NextItem::Lost(lost)) => {
                (Head::encode_message(&ParentMessage::Lost(lost)), Bytes::new(), None)
            }
            Some(NextItem::Frame(frame)) => {
                let head = FrameHead {
                    sequence: frame.sequence,
                    track: frame.frame.track,
                    class: frame.frame.class as u8,
                    time_us: u64::try_from(frame.frame.time.as_micros()).unwrap_or(u64::MAX),
                    age_us: u32::try_from(frame.age(now).as_micros()).unwrap_or(u32::MAX),
                    sent_us: self.context.clock.micros(),
                    length: frame.frame.bytes.len() as u32,
                };
                let left = self.latency().saturating_sub(frame.age(now));
                let is_member = matches!(self.context.to, Child::Member(_));
                let overdue = is_member.then(|| now + left + MAX_OVERDUE);
                (Head::Frame(head).encode().to_vec(), frame.frame.bytes.clone(), overdue)
            }
        };
        self.out = OutgoingItem { head: head.into(), body, overdue };
    }

    /// Whether the item that is being written is long overdue.
    fn is_overdue(&self) -> bool {
        let is_late = |until: Time| !self.out.is_empty() && self.now() > until;
        self.out.overdue.is_some_and(is_late)
    }

    /// Records that the connection accepted `n` bytes; zero means that it was flushed.
    fn record_write(&mut self, n: usize) {
        self.out.advance(n);
        self.rate.add_sent(n);
        self.is_flushed = n == 0;
        self.last_progress = Instant::now();
    }

    fn handle_message(&mut self, message: ChildMessage) {
        match message {
            ChildMessage::Report(report) => self.context.stream.update_leg(self.number, |leg| {
                (leg.child_report, leg.child_age_us) = (report, report.age_us);
            }),
            ChildMessage::Want { .. } if self.changes_left == 0 => self.postponed = Some(message),
            ChildMessage::Want { level, tracks, latency_ms } => {
                self.changes_left -= 1;
                if tracks.len() > MAX_TRACKS {
                    return;
                }
                self.wants = requested_quality(level, &tracks);
                let latency = Duration::from_millis(latency_ms.max(1).into()).min(MAX_LATENCY);
                let wants = self.wants;
                self.queue.set_bounds(Bounds { latency, bytes: self.context.memory });
                self.queue.set_tracks(&tracks);
                self.requested = tracks.is_empty().then(Instant::now);
                self.context.stream.update_leg(self.number, |leg| {
                    (leg.wants, leg.latency, leg.tracks) = (wants, latency, tracks);
                });
                self.update_quality();
            }
            ChildMessage::Bye => {}
        }
    }

    /// Sets the quality to the requested one, limited by the plan, and to key frames while the child is slow.
    fn update_quality(&mut self) {
        let plan = self.context.plan.borrow().clone();
        let leg_plan = match &self.context.to {
            Child::Local(_) => None,
            Child::Member(name) => plan.leg(&self.context.stream.name, name).cloned(),
        };
        self.chooses = self.context.stream.chooses();
        let mut gets = self.wants;
        let (mut why, mut estimate) = (String::new(), None);
        if let Some(leg_plan) = leg_plan {
            gets.level = gets.level.min(leg_plan.quality.level);
            let is_planned = self.requested.is_none() && self.chooses;
            gets.track = gets.track.or(leg_plan.quality.track.filter(|_| is_planned));
            (why, estimate) = (leg_plan.why, leg_plan.estimate);
        }
        if gets.track.is_none() && matches!(self.context.to, Child::Member(_)) {
            gets.track = self.context.stream.first_rendition(self.number);
        }
        if self.is_slow {
            gets.level = Level::Keys;
            "the child has stopped reading".clone_into(&mut why);
        }
        let before = self.queue.quality();
        if gets != before {
            self.queue.set_quality(gets);
        }
        if gets.level != before.level {
            self.new_level = Some(gets.level);
        }
        self.context.stream.update_leg(self.number, |leg| {
            (leg.gets, leg.why, leg.estimate) = (gets, why, estimate);
        });
    }

    /// Samples the leg's rate and progress. Returns the reason if the leg must end.
    fn tick(&mut self) -> Option<Ending> {
        self.count_busy();
        let idle = self.last_progress.elapsed();
        if idle > self.context.stall {
            return Some(Ending::Stalled);
        }
        let slow = SLOW.max(self.latency() / 2).min(self.context.stall / 2);
        if self.is_slow != (idle > slow) {
            self.is_slow = !self.is_slow;
            self.update_quality();
        }
        let is_over = self.requested.is_some_and(|at| at.elapsed() > REPLAN);
        if is_over || self.chooses != self.context.stream.chooses() {
            self.requested = self.requested.filter(|_| !is_over);
            self.update_quality();
        }
        self.changes_left = MAX_CHANGES;
        if let Some(message) = self.postponed.take() {
            self.handle_message(message);
        }
        self.rate.tick(self.now(), TICK);
        let limit = self.rate.rate();
        self.queue.set_path(limit, self.downstream_delay());
        self.ticks += 1;
        // A child suspects a parent that is silent for half a second.
        if self.out.is_empty() && self.queue.is_empty() {
            let quiet_ms = u32::try_from(self.context.stream.quiet().as_millis());
            let alive = ParentMessage::Alive { quiet_ms: quiet_ms.unwrap_or(u32::MAX) };
            self.out.head = Head::encode_message(&alive).into();
        }
        if self.ticks.is_multiple_of(4) {
            self.report();
        }
        None
    }

    /// The one-way delay by the kernel's figures: the smoothed round trip less half of the minimum, because our frames
    /// queue only in the forward direction.
    fn downstream_delay(&self) -> Duration {
        let info = self.socket.as_ref().and_then(|socket| TcpInfo::of(socket).ok());
        let Some(info) = info.filter(|info| info.min_rtt != Duration::MAX) else {
            return Duration::ZERO;
        };
        info.rtt.saturating_sub(info.min_rtt / 2)
    }

    /// Updates the status and metrics with the last second's figures.
    fn report(&mut self) {
        let tally = self.queue.tally().clone();
        self.context.counts.add(&tally);
        let span = self.span.as_secs_f64().max(1e-3);
        let bps = |bytes: u64| (bytes as f64 * 8.0 / span) as u64;
        let (sent, wanted) = (tally.bytes - self.reported.0, tally.wanted - self.reported.1);
        self.reported = (tally.bytes, tally.wanted);
        let busy = self.busy.as_secs_f64() / span;
        let delay = self.queue.delay(self.now());
        let queue_us = delay.as_micros();
        let dropped: u64 = [DropReason::Late, DropReason::Room]
            .iter()
            .filter_map(|why| tally.dropped.get(why))
            .flatten()
            .sum();
        let is_behind = busy > 0.9 && delay > self.latency() / 3;
        let is_limited = dropped > self.dropped || is_behind;
        self.dropped = dropped;
        let tcp = self.socket.as_ref().and_then(|socket| TcpInfo::of(socket).ok());
        let (limit, queue_bytes) = (self.rate.rate(), self.queue.bytes() as u64);
        self.context.stream.update_leg(self.number, |leg| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Counts, Settings, io::IncomingItem};
    use std::future::pending;
    use thalweg_media::Frame;
    use thalweg_wire::stream::leg::{ReceptionReport, encode};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A stream, the context of a leg to this child, and the sender of its plans, which must live as long as the leg.
    fn leg(to: Child, latency_ms: u32) -> (Arc<Stream>, LegContext, watch::Sender<Arc<Plan>>) {
        let clock = Clock::start();
        let name: Name = "stage".parse().unwrap();
        let stream = Stream::new(name.clone(), clock, &Settings::default(), name.clone(), true);
        let stream = Arc::new(stream);
        let (plans, plan) = watch::channel(Arc::default());
        let context = LegContext {
            stream: Arc::clone(&stream),
            request: SubscribeRequest { latency_ms, ..SubscribeRequest::for_stream(name) },
            to,
            memory: 1 << 20,
            stall: Duration::from_secs(60),
            plan,
            clock,
            counts: Counts::default().leg(),
        };
        (stream, context, plans)
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_takes_far_longer_than_its_latency_ends_the_connection_to_a_member() {
        let (stream, context, _plans) = leg(Child::Member("hall".parse().unwrap()), 1000);
        let clock = context.clock;
        let (here, mut child) = tokio::io::duplex(1024);
        let serving = tokio::spawn(serve(Leg::new(here, None), context, pending()));
        let began = Instant::now();
        let class = thalweg_media::FrameClass::Key;
        let bytes = Bytes::from(vec![0; 256 << 10]);
        stream.add_published(Frame { track: 0, class, time: Duration::ZERO, bytes }, clock.now());
        // The child reads 4 kB a second: never stalled, and never done in time.
        let reading = async {
            let mut piece = [0; 1024];
            while child.read_exact(&mut piece).await.is_ok() {
                sleep(Duration::from_millis(250)).await;
            }
        };
        let (ended, ()) = tokio::join!(serving, reading);
        assert_eq!(ended.unwrap().unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        let took = began.elapsed();
        assert!((6.0..7.0).contains(&took.as_secs_f64()), "{took:?}");
    }

    #[tokio::test]
    async fn a_child_gets_the_last_frame_and_the_reason_though_its_reports_are_unread() {
        let (stream, context, _plans) = leg(Child::Member("hall".parse().unwrap()), 60_000);
        let clock = context.clock;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let child = tokio::net::TcpSocket::new_v4().unwrap();
        // The frame has to wait in the parent's socket.
        child.set_recv_buffer_size(4096).unwrap();
        let child = child.connect(listener.local_addr().unwrap()).await.unwrap();
        let (here, _) = listener.accept().await.unwrap();
        socket2::SockRef::from(&here).set_send_buffer_size(200 << 10).unwrap();
        let mut child = Leg::new(child, None);
        // More than the parent reads in some seconds.
        for _ in 0..8 * MAX_MESSAGE_RATE {
            child
                .writer
                .write_message(&ChildMessage::Report(ReceptionReport::default()))
                .await
                .unwrap();
        }
        let bytes = Bytes::from(vec![7; 100 << 10]);
        let class = thalweg_media::FrameClass::Key;
        stream.add_published(Frame { track: 0, class, time: Duration::ZERO, bytes }, clock.now());
        stream.end(Ending::Over);
        let mut demand = stream.demand();
        let serving = tokio::spawn(serve(Leg::new(here, None), context, pending()));
        demand.changed().await.unwrap();
        demand.wait_for(|demand| demand.legs == 0).await.unwrap();
        let mut items = Vec::new();
        while let Ok(item) = child.reader.read_item().await {
            items.push(match item {
                IncomingItem::Frame(_, bytes) => bytes.len().to_string(),
                IncomingItem::Message(ParentMessage::End(why)) => why.to_string(),
                IncomingItem::Message(_) => continue,
            });
        }
        assert_eq!(items, [(100 << 10).to_string(), Ending::Over.to_string()]);
        drop(child);
        assert_eq!(serving.await.unwrap().unwrap(), Ending::Over);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_change_often_are_applied_at_each_tick() {
        let (stream, context, _plans) = leg(Child::Local(1), 1000);
        let (here, mut child) = tokio::io::duplex(1 << 20);
        let serving = tokio::spawn(serve(Leg::new(here, None), context, pending()));
        let mut demand = stream.demand();
        let began = Instant::now();
        let count: u32 = 200;
        for latency_ms in 1..=count {
            let want = ChildMessage::Want { level: Level::All, tracks: Vec::new(), latency_ms };
            child.write_all(&encode(&want)).await.unwrap();
        }
        let (mut changes, last) = (0, Duration::from_millis(count.into()));
        while demand.borrow_and_update().latency != last {
            demand.changed().await.unwrap();
            changes += 1;
        }
        let ticks = began.elapsed().as_millis() / TICK.as_millis() + 1;
        assert!(changes <= 2 * ticks + 1, "{changes} changes in {ticks} ticks");
        assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
        drop(child);
        assert!(serving.await.unwrap().is_err());
    }
}
