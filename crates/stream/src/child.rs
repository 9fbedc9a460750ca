//! The receiving end of a leg: adds a parent's frames to this node's stream.

use crate::{
    Chains, Clock, Entry, NumberedFrame, Stream, Transit,
    frame_rate::FrameRateLimit,
    io::{IncomingItem, Leg, LegReader, LegWriter, half_rtt, invalid_data},
    stream::{Demand, Source},
};
use parking_lot::Mutex;
use std::{
    io,
    os::fd::OwnedFd,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use thalweg_base::timeout::within;
use thalweg_media::{Frame, FrameClass};
use thalweg_net::TcpInfo;
use thalweg_wire::stream::leg::{
    ChildMessage, DropReason, Ending, FrameHead, LostFrame, MAX_LATENCY, MAX_TRACKS, ParentMessage,
    ReceptionReport,
};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
};

/// A parent that sends nothing for this long counts as lost; an idle one sends [`ParentMessage::Alive`]. A large frame
/// may take longer, as long as its bytes arrive.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest time for one item: a frame is useless to everybody after the longest latency.
const ITEM_TIMEOUT: Duration = MAX_LATENCY.saturating_add(SILENCE_TIMEOUT);

/// A parent that has received nothing from the publisher's node for this long is reported to the oracle: its own parent
/// may be lost, or it may be part of a loop. A relay usually finds another parent sooner.
const QUIET_SUSPICION: Duration = Duration::from_secs(3);

/// The leg ends if the parent has received nothing from the publisher's node for this long.
const QUIET_TIMEOUT: Duration = Duration::from_secs(10);

/// A parent that is silent for this long is reported to the oracle, which may name another one. Parents send something
/// every 250 ms; a retransmission timeout is at least 200 ms.
const SUSPICION: Duration = Duration::from_millis(500);

/// The leg stays open this long without a subscriber, so that a returning one finds it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);

/// The least time between two changed requests to the parent, which reads a bounded number of messages a second. Many
/// children of this node may change theirs at once.
const WANT_INTERVAL: Duration = Duration::from_millis(250);

/// Statistics of one second's frames.
#[derive(Debug, Default)]
struct SecondStats {
    report: ReceptionReport,
    ages: Vec<u32>,
}

impl SecondStats {
    /// Returns the second's report and begins the next second.
    fn end(&mut self) -> ReceptionReport {
        let mut ages = std::mem::take(&mut self.ages);
        ages.sort_unstable();
        let age_us = ages.get(ages.len() / 2).copied().unwrap_or(0);
        let worst_us = ages.last().copied().unwrap_or(0);
        let report = ReceptionReport { age_us, worst_us, ..self.report };
        self.report = ReceptionReport { newest: report.newest, ..ReceptionReport::default() };
        report
    }
}

/// The most ages kept per second: 256 frames a second in each of sixteen tracks.
const MAX_AGES: usize = 4096;

/// Receives the frames of a leg.
struct FrameReceiver<'a> {
    stream: &'a Arc<Stream>,
    clock: Clock,
    socket: Option<OwnedFd>,
    /// The reference chains of the frames of this leg and of earlier ones.
    chains: &'a mut Chains,
    transit: Transit,
    next: u64,
    second: Arc<Mutex<SecondStats>>,
    rate: FrameRateLimit,
    began: Instant,
    /// Whether the parent is reported because it receives nothing from the publisher's node.
    is_quiet: bool,
}

/// Receives the stream from its parent until it ends. Returns `None` when nobody subscribes to it any more.
///
/// # Errors
/// When the connection fails or the parent violates the protocol.
pub async fn follow(
    stream: &Arc<Stream>,
    leg: Leg,
    chains: &mut Chains,
    clock: Clock,
) -> io::Result<Option<Ending>> {
    let Leg { mut reader, mut writer, socket } = leg;
    let second = Arc::new(Mutex::new(SecondStats::default()));
    let mut receiver = FrameReceiver {
        stream,
        clock,
        socket,
        chains,
        transit: Transit::default(),
        next: stream.progress().borrow().next,
        second: Arc::clone(&second),
        rate: FrameRateLimit::new(),
        began: Instant::now(),
        is_quiet: false,
    };
    reader.set_patience(SILENCE_TIMEOUT);
    let wanted = stream.demand();
    tokio::select! {
        ended = receiver.run(&mut reader) => ended.map(Some),
        sent = send_reports(&mut writer, stream, &second, wanted.clone()) => sent.map(|()| None),
        () = wait_until_unwanted(wanted) => {
            _ = timeout(Duration::from_secs(1), writer.write_message(&ChildMessage::Bye)).await;
            Ok(None)
        }
    }
}

/// Waits until there has been no subscriber for [`IDLE_TIMEOUT`].
async fn wait_until_unwanted(mut wanted: watch::Receiver<Demand>) {
    loop {
        if wanted.wait_for(|wanted| wanted.legs == 0).await.is_err() {
            return;
        }
        tokio::select! {
            () = sleep(IDLE_TIMEOUT) => return,
            _ = wanted.wait_for(|wanted| wanted.legs > 0) => {}
        }
    }
}

/// Sends a report each second, and the demand whenever it changes.
async fn send_reports(
    writer: &mut LegWriter,
    stream: &Arc<Stream>,
    second: &Mutex<SecondStats>,
    mut wanted: watch::Receiver<Demand>,
) -> io::Result<()> {
    let mut tick = interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut next_want = Instant::now();
    loop {
        let message = tokio::select! {
            _ = tick.tick() => {
                let report = second.lock().end();
                stream.update_intake(|status| {
                    (status.age_us, status.worst_us) = (report.age_us, report.worst_us);
                });
                stream.review_demand();
                ChildMessage::Report(report)
            }
            changed = async { sleep_until(next_want).await; wanted.changed().await } => {
                if changed.is_err() {
                    return Ok(());
                }
                next_want = Instant::now() + WANT_INTERVAL;
                let Demand { legs, level, tracks, latency } = wanted.borrow_and_update().clone();
                if legs == 0 {
                    continue;
                }
                let latency_ms = u32::try_from(latency.as_millis()).unwrap_or(u32::MAX);
                ChildMessage::Want { level, tracks, latency_ms }
            }
        };
        within(SILENCE_TIMEOUT, "progress while sending a report", writer.write_message(&message))
            .await?;
    }
}

impl FrameReceiver<'_> {
    async fn run(&mut self, reader: &mut LegReader) -> io::Result<Ending> {
        loop {
            let item = self.next_item(reader).await?;
            self.rate.admit(item.frames()).await;
            match item {
                IncomingItem::Frame(head, bytes) => self.receive_frame(head, bytes)?,
                IncomingItem::Message(ParentMessage::Lost(lost)) => {
                    for lost in lost {
                        self.receive_lost(lost)?;
                    }
                }
                // No node sends it: frames with new track numbers add tracks.
                IncomingItem::Message(ParentMessage::Tracks(_)) => {}
                IncomingItem::Message(ParentMessage::Level(level)) => {
                    self.stream.update_intake(|status| status.level = Some(level));
                }
                IncomingItem::Message(ParentMessage::Alive { quiet_ms }) => {
                    self.stream.record_sign(Duration::from_millis(quiet_ms.into()));
                }
                IncomingItem::Message(ParentMessage::End(why)) => return Ok(why),
            }
            self.check_signs()?;
        }
    }

    /// Reports a parent that receives nothing from the publisher's node, and later fails.
    fn check_signs(&mut self) -> io::Result<()> {
        // A new parent gets the full time.
        let quiet = self.stream.quiet().min(self.began.elapsed());
        if quiet >= QUIET_TIMEOUT {
            let why = format!("no sign of the publisher's node for {QUIET_TIMEOUT:?}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        let is_quiet = quiet >= QUIET_SUSPICION;
        if is_quiet != self.is_quiet {
            self.is_quiet = is_quiet;
            self.report_parent(is_quiet);
        }
        Ok(())
    }

    /// Reports to the oracle whether the parent is lost.
    fn report_parent(&self, is_lost: bool) {
        let parent = match self.stream.source() {
            Source::Parent(route) => Some(route.node),
            Source::Absent | Source::Publisher(_) => None,
        };
        self.stream.set_lost(parent.filter(|_| is_lost));
    }

    /// Reads the next item, and reports a parent that is silent meanwhile.
    async fn next_item(&self, reader: &mut LegReader) -> io::Result<IncomingItem> {
        let received = reader.received();
        let mut item = pin!(within(ITEM_TIMEOUT, "message from the parent", reader.read_item()));
        let (mut left, mut before) = (SUSPICION, received.load(Ordering::Relaxed));
        while !left.is_zero() {
            if let Ok(item) = timeout(left, &mut item).await {
                return item;
            }
            let now = received.load(Ordering::Relaxed);
            let has_progress = std::mem::replace(&mut before, now) != now;
            left = time_to_suspicion(self.silence(), has_progress);
        }
        self.report_parent(true);
        let item = item.await?;
        self.report_parent(self.is_quiet);
        Ok(item)
    }

    /// The time since the last data from the parent; `None` if the system does not report it.
    fn silence(&self) -> Option<Duration> {
        let info = self.socket.as_ref().and_then(|socket| TcpInfo::of(socket).ok());
        info.map(|info| info.since_data)
    }

    fn receive_frame(&mut self, head: FrameHead, bytes: bytes::Bytes) -> io::Result<()> {
        let class =
            FrameClass::from_number(head.class).filter(|_| usize::from(head.track) < MAX_TRACKS);
        let class =
            class.ok_or_else(|| invalid_data("the class or track of a frame is out of range"))?;
        let now = self.clock.now();
        let took = self.transit.measure(now, head.sent_us, half_rtt(self.socket.as_ref()));
        let age = Duration::from_micros(head.age_us.into()) + took;
        self.count_frame(&head, age);
        self.check_gap(head.sequence);
        let time = Duration::from_micros(head.time_us);
        let frame = Frame { track: head.track, class, time, bytes };
        let born = thalweg_units::Time::from_nanos(
            now.as_nanos().saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)),
        );
        let numbered = NumberedFrame { sequence: head.sequence, born, frame };
        let entry = match self.chains.accept(head.track, class) {
            true => Entry::Frame(Arc::new(numbered)),
            false => {
                self.second.lock().report.useless += 1;
                Entry::Lost(numbered.to_lost(DropReason::Chain))
            }
        };
        self.next = self.next.max(head.sequence + 1);
        self.put(entry)
    }

    fn count_frame(&self, head: &FrameHead, age: Duration) {
        let age_us = u32::try_from(age.as_micros()).unwrap_or(u32::MAX);
        let mut second = self.second.lock();
        second.report.newest = head.sequence;
        second.report.bytes += u64::from(head.length);
        if let Some(count) = second.report.frames.get_mut(usize::from(head.class)) {
            *count += 1;
        }
        if second.ages.len() < MAX_AGES {
            second.ages.push(age_us);
        }
        drop(second);
        self.stream.update_intake(|status| status.came[usize::from(head.class)] += 1);
    }

    /// Breaks all chains if frames before this one are missing without a notice.
    fn check_gap(&mut self, sequence: u64) {
        if sequence > self.next {
            self.chains.break_all();
        }
    }

    fn receive_lost(&mut self, lost: LostFrame) -> io::Result<()> {
        let Some(class) = FrameClass::from_number(lost.class) else { return Ok(()) };
        self.check_gap(lost.sequence);
        self.chains.record_loss(lost.track, class);
        self.next = self.next.max(lost.sequence + 1);
        self.stream.update_intake(|status| *status.missing.entry(lost.why).or_default() += 1);
        self.put(Entry::Lost(lost))
    }

    fn put(&self, entry: Entry) -> io::Result<()> {
        match self.stream.add_received(entry) {
            true => Ok(()),
            false => Err(invalid_data("the number of a frame is too far ahead of the stream")),
        }
    }
}

/// The remaining time until the parent is suspected; zero: it is suspected now. `has_progress`: bytes, for example of a
/// large frame on a slow path, have arrived since the last check.
fn time_to_suspicion(silence: Option<Duration>, has_progress: bool) -> Duration {
    match silence {
        Some(silence) => SUSPICION.saturating_sub(silence),
        None if has_progress => SUSPICION,
        None => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParentRoute, Settings};
    use thalweg_wire::{
        mesh::Name,
        stream::leg::{Accepted, Head},
    };
    use tokio::{
        io::{AsyncWriteExt as _, DuplexStream},
        task::JoinHandle,
    };

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    /// Follows a leg to `parent`; the stream is wanted by one subscriber.
    fn follow_leg() -> (Arc<Stream>, DuplexStream, JoinHandle<io::Result<Option<Ending>>>) {
        let clock = Clock::start();
        let stream = Stream::new(name("stage"), clock, &Settings::default(), name("far"), true);
        let stream = Arc::new(stream);
        let about = Accepted { run: 1, ..stream.about() };
        let source = Source::Parent(ParentRoute::direct(name("parent")));
        assert!(stream.begin(about, source, 0));
        let wants = crate::Quality::default();
        let kind = crate::ChildKind::Local;
        let second = Duration::from_secs(1);
        stream.add_leg(crate::LegStatus::new("local-1".to_owned(), kind, wants, second));
        let (here, there) = tokio::io::duplex(1 << 20);
        let followed = Arc::clone(&stream);
        let following = tokio::spawn(async move {
            follow(&followed, Leg::new(here, None), &mut Chains::default(), clock).await
        });
        (stream, there, following)
    }

    fn key_frame(sequence: u64, length: u32) -> Vec<u8> {
        let class = FrameClass::Key as u8;
        let head =
            FrameHead { sequence, track: 0, class, time_us: 0, age_us: 0, sent_us: 0, length };
        Head::Frame(head).encode().to_vec()
    }

    #[test]
    fn a_parent_that_dies_within_a_frame_is_suspected_after_its_last_byte() {
        let ms = Duration::from_millis;
        assert_eq!(time_to_suspicion(Some(ms(490)), true), ms(10));
        assert_eq!(time_to_suspicion(Some(ms(0)), true), SUSPICION);
        assert_eq!(time_to_suspicion(Some(ms(600)), false), Duration::ZERO);
        assert_eq!(time_to_suspicion(None, true), SUSPICION);
        assert_eq!(time_to_suspicion(None, false), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_frame_may_take_long_if_some_of_it_comes() {
        let (stream, mut parent, following) = follow_leg();
        parent.write_all(&key_frame(0, 40_000)).await.unwrap();
        for _ in 0..10 {
            sleep(SILENCE_TIMEOUT - Duration::from_secs(1)).await;
            assert!(!following.is_finished());
            parent.write_all(&[0; 4000]).await.unwrap();
        }
        sleep(Duration::from_millis(1)).await;
        assert_eq!(stream.progress().borrow().next, 1);
        // Within a frame that stops the leg ends.
        parent.write_all(&key_frame(1, 40_000)).await.unwrap();
        let began = Instant::now();
        assert_eq!(following.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() <= SILENCE_TIMEOUT + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_parent_without_signs_of_the_publisher_is_reported_and_left() {
        let (stream, mut parent, following) = follow_leg();
        let began = Instant::now();
        let mut reported = None;
        while !following.is_finished() {
            // The parent is alive, and so is its clock: what it had of the publisher ages.
            let quiet_ms = began.elapsed().as_millis() as u32;
            let alive = Head::encode_message(&ParentMessage::Alive { quiet_ms });
            if parent.write_all(&alive).await.is_err() {
                break;
            }
            sleep(Duration::from_millis(250)).await;
            if stream.lost().is_some() {
                reported.get_or_insert(began.elapsed());
            }
        }
        let why = following.await.unwrap().unwrap_err();
        assert!(why.to_string().contains("no sign"), "{why}");
        let near = |time: Duration, of: Duration| time >= of && time < of + Duration::from_secs(1);
        assert!(near(reported.unwrap(), QUIET_SUSPICION), "{reported:?}");
        assert!(near(began.elapsed(), QUIET_TIMEOUT), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_children_that_change_often_are_passed_on_four_times_a_second() {
        let (stream, parent, following) = follow_leg();
        let mut parent = Leg::new(parent, None).reader;
        let began = Instant::now();
        let changing = tokio::spawn(async move {
            for latency in 1..=2000 {
                stream.update_leg(0, |leg| leg.latency = Duration::from_millis(latency));
                sleep(Duration::from_millis(1)).await;
            }
        });
        let mut wants = 0;
        loop {
            match parent.read_message(thalweg_wire::stream::leg::MAX_CHILD_MESSAGE).await.unwrap() {
                ChildMessage::Want { latency_ms, .. } => {
                    wants += 1;
                    if latency_ms == 2000 {
                        break;
                    }
                }
                ChildMessage::Report(_) | ChildMessage::Bye => {}
            }
        }
        let most = began.elapsed().as_millis() / WANT_INTERVAL.as_millis() + 1;
        assert!(wants <= most, "{wants} changes in {:?}", began.elapsed());
        changing.await.unwrap();
        following.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_pausing_publisher_is_no_reason_to_leave_its_node() {
        let (stream, mut parent, following) = follow_leg();
        for _ in 0..100 {
            parent
                .write_all(&Head::encode_message(&ParentMessage::Alive { quiet_ms: 0 }))
                .await
                .unwrap();
            sleep(Duration::from_millis(250)).await;
        }
        assert!(!following.is_finished());
        assert_eq!((stream.lost(), stream.quiet() < QUIET_SUSPICION), (None, true));
    }
}
