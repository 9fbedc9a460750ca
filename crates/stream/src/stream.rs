//! One stream at this node: its newest frames, who brings them and who takes them.

use crate::{
    Chains, Clock, Entry, Frame, Numbered, Quality, Ring, Settings, Way,
    rates::Intake,
    status::{LegStatus, StreamStatus},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use thalweg_units::Time;
use thalweg_wire::{
    mesh::{Member, Name},
    stream::leg::{Accepted, Ending, Level, MAX_TRACKS, Track, Why},
};
use tokio::sync::watch;

/// A leg takes so many entries at once, so that the others have their turn.
const TURN: usize = 256;

/// How far a stream is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The number of the next frame.
    pub next: u64,
    /// The publisher's run; zero: it has not begun.
    pub run: u64,
    /// Why it has ended.
    pub ended: Option<Ending>,
}

/// What is wanted of a stream by all who take it here, together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// How many take it.
    pub legs: usize,
    /// The best level.
    pub level: Level,
    /// Tracks; empty: all.
    pub tracks: Vec<u8>,
    /// The longest latency.
    pub latency: Duration,
}

/// Who brings a stream to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody, at present.
    Nobody,
    /// A program of this host, or a member.
    Publisher(String),
    /// Another node.
    Parent(Way),
}

/// A stream; shared by all its legs.
#[derive(Debug)]
pub struct Stream {
    /// Its name.
    pub name: Name,
    clock: Clock,
    state: Mutex<State>,
    head: watch::Sender<Head>,
    wanted: watch::Sender<Wanted>,
}

#[derive(Debug)]
struct State {
    ring: Ring,
    about: Accepted,
    intake: Intake,
    /// Of what the publisher of this run has sent.
    chains: Chains,
    source: Source,
    /// What is to be added to the decoding times of this publisher, who began at zero.
    offset: Duration,
    /// Of the newest frame.
    last: Option<(Time, Duration)>,
    legs: BTreeMap<u64, LegStatus>,
    next_leg: u64,
    /// Ages of frames as they come from a parent.
    status: StreamStatus,
}

impl State {
    /// Tracks that nobody has named have their numbers.
    fn name_track(&mut self, track: u8) {
        let tracks = &mut self.about.tracks;
        while tracks.len() <= usize::from(track) && tracks.len() < MAX_TRACKS {
            tracks.push(Track { label: tracks.len().to_string(), rates: [0; 5] });
        }
    }
}

impl Stream {
    /// A stream of which nothing is known yet.
    pub fn new(name: Name, clock: Clock, settings: &Settings, origin: Name) -> Self {
        let memory = usize::try_from(settings.memory.as_bytes()).unwrap_or(usize::MAX);
        let about = Accepted {
            run: 0,
            start: 0,
            tracks: Vec::new(),
            latency_ms: 1000,
            origin,
            allow: Vec::new(),
        };
        let state = State {
            ring: Ring::new(memory),
            about,
            intake: Intake::default(),
            chains: Chains::default(),
            source: Source::Nobody,
            offset: Duration::ZERO,
            last: None,
            legs: BTreeMap::new(),
            next_leg: 0,
            status: StreamStatus::default(),
        };
        let none =
            Wanted { legs: 0, level: Level::Keys, tracks: Vec::new(), latency: Duration::ZERO };
        Self {
            name,
            clock,
            state: Mutex::new(state),
            head: watch::channel(Head::default()).0,
            wanted: watch::channel(none).0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What is in it is whole between any two statements that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it is, and when that changes.
    pub fn head(&self) -> watch::Receiver<Head> {
        self.head.subscribe()
    }

    /// What is wanted, and when that changes.
    pub fn wanted(&self) -> watch::Receiver<Wanted> {
        self.wanted.subscribe()
    }

    /// What a child is told of it.
    pub fn about(&self) -> Accepted {
        let state = self.lock();
        let mut about = state.about.clone();
        let now = self.clock.now();
        for (number, track) in about.tracks.iter_mut().enumerate() {
            let measured = state.intake.rates(now, number as u8);
            if measured != [0; 5] {
                track.rates = measured;
            }
        }
        about
    }

    /// Whether this member may subscribe, as the publisher's node has it.
    pub fn allows(&self, member: &Member) -> bool {
        let state = self.lock();
        let mut whom = state.about.allow.iter().filter_map(|text| text.parse().ok());
        whom.any(|whom: thalweg_mesh::Whom| whom.is(member))
    }

    /// Who brings it.
    pub fn source(&self) -> Source {
        self.lock().source.clone()
    }

    /// A run begins, or goes on, as its source says; `at`: the number of its next frame.
    pub fn begin(&self, about: Accepted, source: Source, at: u64) {
        let mut state = self.lock();
        let (run, is_new) = (about.run, state.about.run != about.run);
        if is_new {
            state.ring.restart(at);
        }
        (state.about, state.source) = (about, source);
        let next = state.ring.next();
        drop(state);
        self.head.send_modify(|head| *head = Head { next, run, ended: None });
    }

    /// A publisher begins, or returns; its frames follow those of the last one. `false`: another one is there.
    pub fn publish(&self, about: Accepted, who: String) -> bool {
        let mut state = self.lock();
        if matches!(state.source, Source::Publisher(_)) {
            return false;
        }
        let now = self.clock.now();
        state.offset = state.last.map_or(Duration::ZERO, |(born, time)| time + now.since(born));
        let run = match state.about.run {
            0 => about.run,
            run => run,
        };
        // Its first frames may refer to what the last one sent.
        state.chains.lost_unknown();
        state.source = Source::Publisher(who);
        state.about = Accepted { run, ..about };
        let next = state.ring.next();
        drop(state);
        self.head.send_modify(|head| *head = Head { next, run, ended: None });
        true
    }

    /// Nobody brings it any more, for now.
    pub fn vacate(&self) {
        self.lock().source = Source::Nobody;
    }

    /// Its tracks have changed.
    pub fn set_tracks(&self, tracks: Vec<Track>) {
        self.lock().about.tracks = tracks;
    }

    /// It ends.
    pub fn end(&self, why: Ending) {
        self.head.send_modify(|head| head.ended = head.ended.take().or(Some(why)));
    }

    /// Waits until it ends.
    pub async fn ended(&self) -> Ending {
        let mut head = self.head();
        loop {
            if let Some(why) = head.borrow_and_update().ended.clone() {
                return why;
            }
            if head.changed().await.is_err() {
                return Ending::Gone;
            }
        }
    }

    /// A frame of its publisher's.
    pub fn add(&self, frame: Frame) {
        let now = self.clock.now();
        let mut state = self.lock();
        let time = frame.time + state.offset;
        state.name_track(frame.track);
        state.intake.add(now, frame.track, frame.class as u8, frame.bytes.len());
        state.last = Some((now, time));
        let is_whole = state.chains.take(frame.track, frame.class);
        let frame = Frame { time, ..frame };
        let numbered = Numbered { sequence: state.ring.next(), born: now, frame };
        let entry = match is_whole {
            true => Entry::Frame(Arc::new(numbered)),
            false => Entry::Lost(numbered.lost(Why::Chain)),
        };
        self.push(state, entry, now);
    }

    /// The next entry, from a parent. What is known already is passed over; after a gap all chains are broken.
    pub fn put(&self, entry: Entry) {
        let now = self.clock.now();
        let mut state = self.lock();
        if entry.sequence() < state.ring.next() {
            return;
        }
        if entry.sequence() > state.ring.next() {
            state.ring.restart(entry.sequence());
        }
        if let Entry::Frame(numbered) = &entry {
            let Frame { track, class, ref bytes, .. } = numbered.frame;
            state.name_track(track);
            state.intake.add(now, track, class as u8, bytes.len());
        }
        self.push(state, entry, now);
    }

    fn push(&self, mut state: MutexGuard<'_, State>, entry: Entry, now: Time) {
        let latency = self.longest(&state);
        state.ring.push(entry, now, latency);
        let next = state.ring.next();
        drop(state);
        self.head.send_modify(|head| head.next = next);
    }

    fn longest(&self, state: &State) -> Duration {
        let latency = Duration::from_millis(state.about.latency_ms.into());
        latency.max(self.wanted.borrow().latency)
    }

    /// The number at which a child begins who has what is before `after`.
    pub fn beginning(&self, after: Option<(u64, u64)>) -> u64 {
        let state = self.lock();
        match after {
            Some((run, last))
                if run == state.about.run
                    && (state.ring.first()..=state.ring.next()).contains(&(last + 1)) =>
            {
                last + 1
            }
            _ => state.ring.beginning(),
        }
    }

    /// Some entries from the cursor on, which moves behind them; whether those at the cursor are gone, so that it jumps.
    pub fn take(&self, cursor: &mut u64, into: &mut Vec<Entry>) -> bool {
        let state = self.lock();
        let is_gone = *cursor < state.ring.first();
        *cursor = (*cursor).max(state.ring.first());
        while into.len() < TURN
            && let Some(entry) = state.ring.get(*cursor)
        {
            into.push(entry.clone());
            *cursor += 1;
        }
        is_gone
    }

    /// A leg takes it from now on; its number.
    pub fn join(&self, status: LegStatus) -> u64 {
        let mut state = self.lock();
        let number = state.next_leg;
        state.next_leg += 1;
        state.legs.insert(number, status);
        self.sum_up(&state);
        number
    }

    /// The leg's newest figures.
    pub fn note(&self, number: u64, change: impl FnOnce(&mut LegStatus)) {
        let mut state = self.lock();
        let Some(leg) = state.legs.get_mut(&number) else { return };
        let before = (leg.wants, leg.latency);
        change(leg);
        if before != (leg.wants, leg.latency) {
            self.sum_up(&state);
        }
    }

    /// The leg is gone.
    pub fn leave(&self, number: u64) {
        let mut state = self.lock();
        state.legs.remove(&number);
        self.sum_up(&state);
    }

    fn sum_up(&self, state: &State) {
        let legs = || state.legs.values();
        let of = |leg: &LegStatus| leg.wants.track;
        let mut tracks: Vec<u8> = legs().filter_map(of).collect();
        tracks.sort_unstable();
        tracks.dedup();
        if legs().any(|leg| leg.wants.track.is_none()) {
            tracks.clear();
        }
        let wanted = Wanted {
            legs: state.legs.len(),
            level: legs().map(|leg| leg.wants.level).max().unwrap_or(Level::Keys),
            tracks,
            latency: legs().map(|leg| leg.latency).max().unwrap_or_default(),
        };
        self.wanted.send_if_modified(|old| {
            let is_new = *old != wanted;
            *old = wanted;
            is_new
        });
    }

    /// What came from a parent in the last second.
    pub fn note_intake(&self, change: impl FnOnce(&mut StreamStatus)) {
        change(&mut self.lock().status);
    }

    /// What is known of it.
    pub fn status(&self) -> StreamStatus {
        let about = self.about();
        let head = self.head.borrow().clone();
        let state = self.lock();
        let is_ended = head.ended.map(|why| why.to_string());
        StreamStatus {
            name: Some(self.name.clone()),
            origin: Some(about.origin),
            published_by: match &state.source {
                Source::Publisher(who) => Some(who.clone()),
                _ => None,
            },
            parent: match &state.source {
                Source::Parent(way) => Some(way.clone()),
                _ => None,
            },
            run: head.run,
            next: head.next,
            ended: is_ended,
            latency_ms: about.latency_ms,
            rates: about.tracks.iter().map(|track| track.rates).collect(),
            tracks: about.tracks.into_iter().map(|track| track.label).collect(),
            held_bytes: state.ring.bytes() as u64,
            legs: state.legs.values().cloned().collect(),
            ..state.status.clone()
        }
    }
}

/// What a leg wants if it says no more than a level and tracks: one track, or all.
pub fn quality(level: Level, tracks: &[u8]) -> Quality {
    Quality { track: if let [one] = tracks { Some(*one) } else { None }, level }
}
