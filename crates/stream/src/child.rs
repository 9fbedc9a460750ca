//! The receiving end of a leg: adds a parent's frames to this node's stream.

use crate::{
    Chains, Clock, Entry, NumberedFrame, Stream, Transit,
    io::{Incoming, Leg, LegReader, LegWriter, half_rtt, invalid_data},
    stream::{Demand, Source},
};
use std::{
    io,
    os::fd::OwnedFd,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use thalweg_base::timeout::within;
use thalweg_media::{Frame, FrameClass};
use thalweg_net::TcpInfo;
use thalweg_wire::stream::leg::{Ending, FrameHead, Lost, MAX_TRACKS, Report, Said, Why, Word};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

/// A silent parent counts as lost after this time; an idle one sends [`Said::Alive`].
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// A parent that is silent for this long is reported to the oracle, which may name another one. Parents send something
/// every 250 ms; a retransmission timeout is at least 200 ms.
const SUSPICION: Duration = Duration::from_millis(500);

/// The leg stays open this long without a subscriber, so that a returning one finds it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3);

/// Statistics of one second's frames.
#[derive(Debug, Default)]
struct SecondStats {
    report: Report,
    ages: Vec<u32>,
}

impl SecondStats {
    /// Returns the second's report and begins the next second.
    fn end(&mut self) -> Report {
        let mut ages = std::mem::take(&mut self.ages);
        ages.sort_unstable();
        let age_us = ages.get(ages.len() / 2).copied().unwrap_or(0);
        let worst_us = ages.last().copied().unwrap_or(0);
        let report = Report { age_us, worst_us, ..self.report };
        self.report = Report { received: report.received, ..Report::default() };
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
    /// Covers the frames of this leg and of earlier ones.
    chains: &'a mut Chains,
    transit: Transit,
    next: u64,
    second: Arc<Mutex<SecondStats>>,
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
    };
    let wanted = stream.demand();
    tokio::select! {
        ended = receiver.run(&mut reader) => ended.map(Some),
        sent = send_reports(&mut writer, stream, &second, wanted.clone()) => sent.map(|()| None),
        () = wait_until_unwanted(wanted) => {
            _ = timeout(Duration::from_secs(1), writer.write_message(&Word::Bye)).await;
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
    loop {
        let word = tokio::select! {
            _ = tick.tick() => {
                let report = second.lock().unwrap_or_else(PoisonError::into_inner).end();
                stream.update_intake(|status| {
                    (status.age_us, status.worst_us) = (report.age_us, report.worst_us);
                });
                Word::Report(report)
            }
            changed = wanted.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let Demand { legs, level, tracks, latency } = wanted.borrow_and_update().clone();
                if legs == 0 {
                    continue;
                }
                let latency_ms = u32::try_from(latency.as_millis()).unwrap_or(u32::MAX);
                Word::Want { level, tracks, latency_ms }
            }
        };
        within(SILENCE_TIMEOUT, "room for a report", writer.write_message(&word)).await?;
    }
}

impl FrameReceiver<'_> {
    async fn run(&mut self, reader: &mut LegReader) -> io::Result<Ending> {
        loop {
            match self.next_item(reader).await? {
                Incoming::Frame(head, bytes) => self.receive_frame(head, bytes)?,
                Incoming::Said(Said::Lost(lost)) => {
                    for lost in lost {
                        self.receive_lost(lost)?;
                    }
                }
                Incoming::Said(Said::Tracks(tracks)) => self.stream.set_tracks(tracks),
                Incoming::Said(Said::Level(level)) => {
                    self.stream.update_intake(|status| status.level = Some(level));
                }
                Incoming::Said(Said::Alive) => {}
                Incoming::Said(Said::End(why)) => return Ok(why),
            }
        }
    }

    /// Reads the next item, and reports a parent that is silent meanwhile.
    async fn next_item(&self, reader: &mut LegReader) -> io::Result<Incoming> {
        let mut item = pin!(within(SILENCE_TIMEOUT, "message of the parent", reader.read_item()));
        let mut left = SUSPICION;
        while !left.is_zero() {
            match timeout(left, &mut item).await {
                Ok(item) => return item,
                // A large frame takes long on a slow path.
                Err(_) => left = SUSPICION.saturating_sub(self.silence()),
            }
        }
        if let Source::Parent(route) = self.stream.source() {
            self.stream.set_lost(Some(route.node));
        }
        let item = item.await?;
        self.stream.set_lost(None);
        Ok(item)
    }

    /// How long nothing has come from the parent, when an item is overdue.
    fn silence(&self) -> Duration {
        let info = self.socket.as_ref().and_then(|socket| TcpInfo::of(socket).ok());
        info.map_or(SUSPICION, |info| info.since_data)
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
                self.second.lock().unwrap_or_else(PoisonError::into_inner).report.useless += 1;
                Entry::Lost(numbered.to_lost(Why::Chain))
            }
        };
        self.next = self.next.max(head.sequence + 1);
        self.put(entry)
    }

    fn count_frame(&self, head: &FrameHead, age: Duration) {
        let age_us = u32::try_from(age.as_micros()).unwrap_or(u32::MAX);
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        second.report.received = head.sequence;
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

    fn receive_lost(&mut self, lost: Lost) -> io::Result<()> {
        let Some(class) = FrameClass::from_number(lost.class) else { return Ok(()) };
        self.check_gap(lost.sequence);
        self.chains.record_loss(lost.track, class);
        self.next = self.next.max(lost.sequence + 1);
        self.stream.update_intake(|status| *status.missing.entry(lost.why).or_default() += 1);
        self.put(Entry::Lost(lost))
    }

    fn put(&self, entry: Entry) -> io::Result<()> {
        match self.stream.put(entry) {
            true => Ok(()),
            false => Err(invalid_data("the number of a frame is far ahead of the stream")),
        }
    }
}
