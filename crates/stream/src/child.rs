//! The receiving end of a leg: frames of a parent become part of this node's stream.

use crate::{
    Chains, Clock, Entry, Frame, Numbered, Stream, Transit, class_of,
    io::{Hear, Incoming, Leg, Say, half_rtt, invalid},
    stream::Wanted,
};
use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use thalweg_base::timeout::within;
use thalweg_wire::stream::leg::{Ending, FrameHead, Lost, MAX_TRACKS, Report, Said, Why, Word};
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};

/// A parent that has nothing to send says so each second; silent for so long, it is gone.
const SILENT: Duration = Duration::from_secs(5);

/// Without anybody who takes the stream the leg is kept for so long: whoever comes back finds it.
const IDLE: Duration = Duration::from_secs(3);

/// What a second's frames told.
#[derive(Debug, Default)]
struct Second {
    report: Report,
    ages: Vec<u32>,
}

impl Second {
    /// The report of it; the next one begins.
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

/// Ages that are kept of a second: two hundred frames a second in sixteen tracks.
const MOST_AGES: usize = 4096;

/// What comes of a leg.
struct Intake<'a> {
    stream: &'a Arc<Stream>,
    clock: Clock,
    socket: Option<OwnedFd>,
    /// Of what came by this leg and those before it.
    chains: &'a mut Chains,
    transit: Transit,
    next: u64,
    second: Arc<Mutex<Second>>,
}

/// Takes the stream from its parent until it ends, or nobody wants it any more (`None`).
///
/// # Errors
/// The connection's; a parent that sends what cannot be.
pub async fn follow(
    stream: &Arc<Stream>,
    leg: Leg,
    chains: &mut Chains,
    clock: Clock,
) -> io::Result<Option<Ending>> {
    let Leg { mut hear, mut say, socket } = leg;
    let second = Arc::new(Mutex::new(Second::default()));
    let mut intake = Intake {
        stream,
        clock,
        socket,
        chains,
        transit: Transit::default(),
        next: stream.head().borrow().next,
        second: Arc::clone(&second),
    };
    let wanted = stream.wanted();
    tokio::select! {
        ended = intake.run(&mut hear) => ended.map(Some),
        said = tell(&mut say, stream, &second, wanted.clone()) => said.map(|()| None),
        () = unwanted(wanted) => {
            _ = tokio::time::timeout(Duration::from_secs(1), say.message(&Word::Bye)).await;
            Ok(None)
        }
    }
}

/// Until nobody has wanted it for a while.
async fn unwanted(mut wanted: watch::Receiver<Wanted>) {
    loop {
        if wanted.wait_for(|wanted| wanted.legs == 0).await.is_err() {
            return;
        }
        tokio::select! {
            () = sleep(IDLE) => return,
            _ = wanted.wait_for(|wanted| wanted.legs > 0) => {}
        }
    }
}

/// Reports each second, and says what is wanted when that changes.
async fn tell(
    say: &mut Say,
    stream: &Arc<Stream>,
    second: &Mutex<Second>,
    mut wanted: watch::Receiver<Wanted>,
) -> io::Result<()> {
    let mut tick = interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let word = tokio::select! {
            _ = tick.tick() => {
                let report = second.lock().unwrap_or_else(PoisonError::into_inner).end();
                stream.note_intake(|status| {
                    (status.age_us, status.worst_us) = (report.age_us, report.worst_us);
                });
                Word::Report(report)
            }
            changed = wanted.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let Wanted { legs, level, tracks, latency } = wanted.borrow_and_update().clone();
                if legs == 0 {
                    continue;
                }
                let latency_ms = u32::try_from(latency.as_millis()).unwrap_or(u32::MAX);
                Word::Want { level, tracks, latency_ms }
            }
        };
        within(SILENT, "room for a report", say.message(&word)).await?;
    }
}

impl Intake<'_> {
    async fn run(&mut self, hear: &mut Hear) -> io::Result<Ending> {
        loop {
            let incoming = within(SILENT, "word of the parent", hear.incoming()).await?;
            match incoming {
                Incoming::Frame(head, bytes) => self.frame(head, bytes)?,
                Incoming::Said(Said::Lost(lost)) => {
                    lost.into_iter().for_each(|lost| self.lost(lost))
                }
                Incoming::Said(Said::Tracks(tracks)) => self.stream.set_tracks(tracks),
                Incoming::Said(Said::Level(_) | Said::Alive) => {}
                Incoming::Said(Said::End(why)) => return Ok(why),
            }
        }
    }

    fn frame(&mut self, head: FrameHead, bytes: bytes::Bytes) -> io::Result<()> {
        let class = class_of(head.class).filter(|_| usize::from(head.track) < MAX_TRACKS);
        let class = class.ok_or_else(|| invalid("a frame of no track that can be"))?;
        let now = self.clock.now();
        let took = self.transit.came(now, head.sent_us, half_rtt(self.socket.as_ref()));
        let age = Duration::from_micros(head.age_us.into()) + took;
        self.note(&head, age);
        self.missing(head.sequence);
        let time = Duration::from_micros(head.time_us);
        let frame = Frame { track: head.track, class, time, bytes };
        let born = thalweg_units::Time::from_nanos(
            now.as_nanos().saturating_sub(u64::try_from(age.as_nanos()).unwrap_or(u64::MAX)),
        );
        let numbered = Numbered { sequence: head.sequence, born, frame };
        let entry = match self.chains.take(head.track, class) {
            true => Entry::Frame(Arc::new(numbered)),
            false => {
                self.second.lock().unwrap_or_else(PoisonError::into_inner).report.useless += 1;
                Entry::Lost(numbered.lost(Why::Chain))
            }
        };
        self.next = self.next.max(head.sequence + 1);
        self.stream.put(entry);
        Ok(())
    }

    fn note(&self, head: &FrameHead, age: Duration) {
        let age_us = u32::try_from(age.as_micros()).unwrap_or(u32::MAX);
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        second.report.received = head.sequence;
        second.report.bytes += u64::from(head.length);
        if let Some(count) = second.report.frames.get_mut(usize::from(head.class)) {
            *count += 1;
        }
        if second.ages.len() < MOST_AGES {
            second.ages.push(age_us);
        }
        drop(second);
        self.stream.note_intake(|status| status.came[usize::from(head.class)] += 1);
    }

    /// Frames before this one that neither came nor were told of break all chains.
    fn missing(&mut self, sequence: u64) {
        if sequence > self.next {
            self.chains.lost_unknown();
        }
    }

    fn lost(&mut self, lost: Lost) {
        let Some(class) = class_of(lost.class) else { return };
        self.missing(lost.sequence);
        self.chains.lost(lost.track, class);
        self.next = self.next.max(lost.sequence + 1);
        self.stream.note_intake(|status| *status.missing.entry(lost.why).or_default() += 1);
        self.stream.put(Entry::Lost(lost));
    }
}
