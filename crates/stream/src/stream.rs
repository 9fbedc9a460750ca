//! One stream at this node: its newest frames, its source and its legs.

use crate::{
    Chains, Clock, Entry, NumberedFrame, ParentRoute, Quality, Ring, Settings,
    all_renditions::AllRenditionsPolicy,
    intake_rates::IntakeRates,
    status::{ChildKind, LegStatus, StreamStatus},
};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use thalweg_media::Frame;
use thalweg_units::Time;
use thalweg_wire::{
    mesh::{Member, Name},
    stream::leg::{Accepted, DropReason, Ending, Level, MAX_TRACKS, SubscribeRequest, Track},
};
use tokio::sync::{Notify, watch};

/// The most entries that a leg reads at once, so that other legs get their turn.
const MAX_READ: usize = 256;

/// The most nodes that are remembered as sources of a run: more than a plan ever uses.
const MAX_PARENTS: usize = 16;

/// The longest gap between a parent's numbers within a run: an hour at 72 frames a second, longer than any stream waits
/// for its publisher. After a jump all frames of an honest parent would be ignored as known until it gets there.
const MAX_GAP: u64 = 1 << 18;

/// The time within which every rendition of a stream sends a picture.
const SETTLED: Duration = Duration::from_secs(2);

/// The progress of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of the next frame.
    pub next: u64,
    /// The publisher's run; zero if the stream has not begun.
    pub run: u64,
    /// Why it has ended; `None` if it has not.
    pub ended: Option<Ending>,
}

/// The combined requests of a stream's subscribers at this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The number of legs.
    pub legs: usize,
    /// The highest requested level.
    pub level: Level,
    /// The requested tracks; several: one of them at a time; empty: all at once.
    pub tracks: Vec<u8>,
    /// The longest requested latency.
    pub latency: Duration,
}

/// The source of a stream's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// No source at present.
    Absent,
    /// A publisher, by its display name.
    Publisher(String),
    /// Another node.
    Parent(ParentRoute),
}

/// A stream, shared by all its legs.
#[derive(Debug)]
pub struct Stream {
    pub name: Name,
    /// Whether it is received from another node; otherwise it is published here.
    pub is_relayed: bool,
    clock: Clock,
    state: Mutex<State>,
    progress: watch::Sender<Progress>,
    demand: watch::Sender<Demand>,
    /// Notified of changes that the oracle should learn at once.
    news: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    ring: Ring,
    about: Accepted,
    intake: IntakeRates,
    /// The reference chains of the present publisher's frames.
    chains: Chains,
    source: Source,
    /// The nodes from which the present run has come, at most [`MAX_PARENTS`].
    parents: BTreeSet<Name>,
    /// The parent, if it is silent or unreachable.
    lost: Option<Name>,
    /// Planned parents that were lost or could not be reached since the last report to the oracle.
    newly_lost: BTreeSet<Name>,
    /// When the publisher's node last sent a frame or keep-alive; `None`: not yet.
    sign: Option<Time>,
    /// Added to the decoding times of the present publisher, which begin at zero.
    offset: Duration,
    /// The arrival and decoding time of the newest frame.
    last: Option<(Time, Duration)>,
    /// When its first publisher here began.
    published: Option<Time>,
    legs: BTreeMap<u64, LegStatus>,
    next_leg: u64,
    all_renditions: AllRenditionsPolicy,
    /// The statistics of frames from a parent; other fields are unused.
    status: StreamStatus,
}

impl State {
    /// Whether this node needs all renditions: each leg takes one of several, and paths to members differ, so that they
    /// may take different ones. Programs of this host can take any rendition.
    fn wants_all_renditions(&self) -> bool {
        let mut legs = self.legs.values();
        self.legs.len() > 1
            && self.legs.values().all(|leg| leg.tracks.len() > 1)
            && legs.any(|leg| leg.taker == ChildKind::Member)
    }

    /// Adds undeclared tracks up to this one; their labels are their numbers.
    fn add_tracks_up_to(&mut self, track: u8) {
        let tracks = &mut self.about.tracks;
        while tracks.len() <= usize::from(track) && tracks.len() < MAX_TRACKS {
            tracks.push(Track { label: tracks.len().to_string(), rates: [0; 5] });
        }
    }
}

impl Stream {
    /// Creates a stream that has not begun.
    pub fn new(
        name: Name,
        clock: Clock,
        settings: &Settings,
        origin: Name,
        is_relayed: bool,
    ) -> Self {
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
            intake: IntakeRates::default(),
            chains: Chains::default(),
            source: Source::Absent,
            lost: None,
            newly_lost: BTreeSet::new(),
            sign: None,
            offset: Duration::ZERO,
            last: None,
            published: None,
            parents: BTreeSet::new(),
            legs: BTreeMap::new(),
            next_leg: 0,
            all_renditions: AllRenditionsPolicy::default(),
            status: StreamStatus::default(),
        };
        let none =
            Demand { legs: 0, level: Level::Keys, tracks: Vec::new(), latency: Duration::ZERO };
        Self {
            name,
            is_relayed,
            clock,
            state: Mutex::new(state),
            progress: watch::channel(Progress::default()).0,
            demand: watch::channel(none).0,
            news: Arc::default(),
        }
    }

    /// Sets `news`, which is notified of changes that the oracle should learn at once.
    #[must_use]
    pub(crate) fn with_news(mut self, news: Arc<Notify>) -> Self {
        self.news = news;
        self
    }

    /// A receiver of the stream's progress.
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.subscribe()
    }

    /// A receiver of the subscribers' combined demand.
    pub fn demand(&self) -> watch::Receiver<Demand> {
        self.demand.subscribe()
    }

    /// The description for a child, with measured rates.
    pub fn about(&self) -> Accepted {
        let state = self.state.lock();
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

    /// Whether the publisher's node allows this member to subscribe.
    pub fn allows(&self, member: &Member) -> bool {
        let state = self.state.lock();
        let mut patterns = state.about.allow.iter().filter_map(|text| text.parse().ok());
        patterns.any(|pattern: thalweg_wire::mesh::MemberPattern| pattern.matches(member))
    }

    /// The present source.
    pub fn source(&self) -> Source {
        self.state.lock().source.clone()
    }

    /// The parent, if it is silent or unreachable.
    pub fn lost(&self) -> Option<Name> {
        self.state.lock().lost.clone()
    }

    /// The parents that are lost now, and those that were lost or could not be reached since the last call.
    pub(crate) fn take_lost(&self) -> BTreeSet<Name> {
        let mut state = self.state.lock();
        let mut lost = std::mem::take(&mut state.newly_lost);
        lost.extend(state.lost.clone());
        lost
    }

    /// Records that a planned parent cannot be reached.
    pub(crate) fn add_unreachable(&self, parent: Name) {
        if self.state.lock().newly_lost.insert(parent) {
            self.news.notify_one();
        }
    }

    /// Records that this parent is silent or unreachable; `None`: it sends frames.
    pub(crate) fn set_lost(&self, parent: Option<Name>) {
        let mut state = self.state.lock();
        if state.lost != parent {
            state.newly_lost.extend(parent.clone());
            state.lost = parent;
            self.news.notify_one();
        }
    }

    /// The time since the publisher's node last sent a frame or keep-alive; zero at the publisher's node.
    pub(crate) fn quiet(&self) -> Duration {
        let now = self.clock.now();
        let sign = self.state.lock().sign.filter(|_| self.is_relayed);
        sign.map_or(Duration::ZERO, |at| now.since(at))
    }

    /// Records that the publisher's node sent a frame or keep-alive so long ago, according to the parent.
    pub(crate) fn record_sign(&self, quiet: Duration) {
        let now = self.clock.now().as_nanos();
        let ago = u64::try_from(quiet.as_nanos()).unwrap_or(u64::MAX);
        let sign = Time::from_nanos(now.saturating_sub(ago));
        let mut state = self.state.lock();
        state.sign = state.sign.max(Some(sign));
    }

    /// Begins or resumes a run from this source; `at` is the number of its first frame. Returns false if the run is
    /// known and `at` is more than `MAX_GAP` ahead.
    pub fn begin(&self, about: Accepted, source: Source, at: u64) -> bool {
        let mut state = self.state.lock();
        let (run, is_new) = (about.run, state.about.run != about.run);
        if is_new {
            state.ring.restart(at);
            state.parents.clear();
        } else if at > state.ring.next().saturating_add(MAX_GAP) {
            return false;
        }
        if let Source::Parent(route) = &source
            && state.parents.len() < MAX_PARENTS
        {
            state.parents.insert(route.node.clone());
        }
        (state.about, state.source, state.lost) = (about, source, None);
        state.sign.get_or_insert(self.clock.now());
        let next = state.ring.next();
        drop(state);
        self.news.notify_one();
        self.progress.send_modify(|progress| *progress = Progress { next, run, ended: None });
        true
    }

    /// Whether the present run has come from this node.
    pub(crate) fn has_come_from(&self, node: &Name) -> bool {
        self.state.lock().parents.contains(node)
    }

    /// Begins publishing, or resumes the run of an earlier publisher or connection.
    pub fn publish(&self, about: Accepted, publisher: String) {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.offset = state.last.map_or(Duration::ZERO, |(born, time)| time + now.since(born));
        let run = match state.about.run {
            0 => about.run,
            run => run,
        };
        // Its first frames may refer to frames that nobody has.
        state.chains.break_all();
        state.source = Source::Publisher(publisher);
        state.published.get_or_insert(now);
        state.about = Accepted { run, ..about };
        let next = state.ring.next();
        drop(state);
        self.news.notify_one();
        self.progress.send_modify(|progress| *progress = Progress { next, run, ended: None });
    }

    /// The time since it was first published here, including absences of its publisher.
    pub(crate) fn published_for(&self) -> Duration {
        let began = self.state.lock().published;
        began.map_or(Duration::ZERO, |at| self.clock.now().since(at))
    }

    /// Marks the stream as without a source.
    pub fn clear_source(&self) {
        self.state.lock().source = Source::Absent;
    }

    /// Ends the stream; the first reason is kept.
    pub fn end(&self, why: Ending) {
        self.progress.send_modify(|progress| progress.ended = progress.ended.take().or(Some(why)));
    }

    /// Waits until the stream ends and returns the reason.
    pub async fn ended(&self) -> Ending {
        let mut progress = self.progress();
        loop {
            if let Some(why) = progress.borrow_and_update().ended.clone() {
                return why;
            }
            if progress.changed().await.is_err() {
                return Ending::Gone;
            }
        }
    }

    /// Adds a frame from the publisher, or a transcoded picture of it; `born` is when the publisher's frame arrived.
    pub fn add_published(&self, frame: Frame, born: Time) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let time = frame.time + state.offset;
        state.add_tracks_up_to(frame.track);
        state.intake.add(now, frame.track, frame.class as u8, frame.bytes.len());
        state.last = Some((born, time));
        let is_intact = state.chains.accept(frame.track, frame.class);
        let frame = Frame { time, ..frame };
        let numbered = NumberedFrame { sequence: state.ring.next(), born, frame };
        let entry = match is_intact {
            true => Entry::Frame(Arc::new(numbered)),
            false => Entry::Lost(numbered.to_lost(DropReason::Chain)),
        };
        self.push(state, entry, now);
    }

    /// Adds an entry from a parent. Ignores known entries; a gap restarts the ring, which breaks the legs' chains.
    /// Returns false, and ignores the entry, if the gap is longer than `MAX_GAP`.
    pub fn add_received(&self, entry: Entry) -> bool {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if entry.sequence() < state.ring.next() {
            return true;
        }
        if entry.sequence() - state.ring.next() > MAX_GAP {
            return false;
        }
        // Known frames, as in a loop of nodes, are no sign of the publisher's node.
        state.sign = Some(now);
        if entry.sequence() > state.ring.next() {
            state.ring.restart(entry.sequence());
        }
        if let Entry::Frame(numbered) = &entry {
            let Frame { track, class, ref bytes, .. } = numbered.frame;
            state.add_tracks_up_to(track);
            state.intake.add(now, track, class as u8, bytes.len());
        }
        self.push(state, entry, now);
        true
    }

    fn push(&self, mut state: MutexGuard<'_, State>, entry: Entry, now: Time) {
        let latency = self.longest_latency(&state);
        state.ring.push(entry, now, latency);
        let next = state.ring.next();
        drop(state);
        self.progress.send_modify(|progress| progress.next = next);
    }

    fn longest_latency(&self, state: &State) -> Duration {
        let latency = Duration::from_millis(state.about.latency_ms.into());
        latency.max(self.demand.borrow().latency)
    }

    /// The number at which a child begins; `after` is the run and number of its last frame.
    pub fn start_after(&self, after: Option<(u64, u64)>) -> u64 {
        let state = self.state.lock();
        match after {
            Some((run, last))
                if run == state.about.run
                    && (state.ring.first()..=state.ring.next()).contains(&(last + 1)) =>
            {
                last + 1
            }
            _ => state.ring.start(),
        }
    }

    /// Reads entries from the cursor and advances it. Returns whether entries at the cursor were already removed.
    pub fn read_entries(&self, cursor: &mut u64, into: &mut Vec<Entry>) -> bool {
        let state = self.state.lock();
        let is_gone = *cursor < state.ring.first();
        *cursor = (*cursor).max(state.ring.first());
        while into.len() < MAX_READ
            && let Some(entry) = state.ring.get(*cursor)
        {
            into.push(entry.clone());
            *cursor += 1;
        }
        is_gone
    }

    /// Registers a leg and returns its number.
    pub fn add_leg(&self, status: LegStatus) -> u64 {
        let mut state = self.state.lock();
        let number = state.next_leg;
        state.next_leg += 1;
        state.legs.insert(number, status);
        self.update_demand(&state);
        number
    }

    /// Updates the status of a leg.
    pub fn update_leg(&self, number: u64, change: impl FnOnce(&mut LegStatus)) {
        let mut state = self.state.lock();
        let Some(leg) = state.legs.get_mut(&number) else { return };
        let before = (leg.wants, leg.latency, leg.tracks.clone());
        change(leg);
        if before != (leg.wants, leg.latency, leg.tracks.clone()) {
            self.update_demand(&state);
        }
    }

    /// Removes a leg.
    pub fn remove_leg(&self, number: u64) {
        let mut state = self.state.lock();
        state.legs.remove(&number);
        self.update_demand(&state);
    }

    fn update_demand(&self, state: &State) {
        let legs = || state.legs.values();
        let first = legs().next().map(|leg| leg.tracks.clone()).unwrap_or_default();
        // Renditions are alternatives of one request only if all legs request the same ones and one rendition suffices
        // for all legs.
        let is_one = legs().all(|leg| leg.tracks == first)
            && (!state.wants_all_renditions() || state.all_renditions.is_suspended());
        let tracks = if is_one { first } else { Vec::new() };
        let demand = Demand {
            legs: state.legs.len(),
            level: legs().map(|leg| leg.wants.level).max().unwrap_or(Level::Keys),
            tracks,
            latency: legs().map(|leg| leg.latency).max().unwrap_or_default(),
        };
        self.demand.send_if_modified(|old| {
            let is_new = *old != demand;
            *old = demand;
            is_new
        });
    }

    /// Decides each second whether to request all renditions for subscribers that take one each.
    pub(crate) fn review_demand(&self) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let missing = &state.status.missing;
        let lost =
            [DropReason::Late, DropReason::Room].iter().filter_map(|why| missing.get(why)).sum();
        let is_all = state.wants_all_renditions() && self.demand.borrow().tracks.is_empty();
        if state.all_renditions.tick(now, lost, is_all) {
            self.update_demand(&state);
        }
    }

    /// Whether this node chooses among a stream's renditions because it receives all of them.
    pub(crate) fn chooses(&self) -> bool {
        self.has_all_renditions(&self.state.lock())
    }

    /// Whether the node receives all renditions. A parent that chooses among them sends one at a time.
    fn has_all_renditions(&self, state: &State) -> bool {
        !matches!(state.source, Source::Parent(_)) || self.demand.borrow().tracks.len() < 2
    }

    /// The rendition to begin with on a leg that requests one of several: the one with the highest rate. `None` if this
    /// node does not choose.
    pub fn first_rendition(&self, leg: u64) -> Option<u8> {
        let rates = self.about().tracks;
        let state = self.state.lock();
        let tracks = &state.legs.get(&leg)?.tracks;
        if tracks.len() < 2 || rates.len() < 2 || !self.has_all_renditions(&state) {
            return None;
        }
        // A declared rendition may have ended, or the parent may have no room for it.
        let now = self.clock.now();
        let is_arriving =
            |track: u8| state.intake.rates(now, track)[2..].iter().any(|bps| *bps > 0);
        let is_settled =
            state.intake.span(now) >= SETTLED && tracks.iter().any(|at| is_arriving(*at));
        let rate =
            |track: &u8| rates.get(usize::from(*track)).map(|track| track.rates.iter().sum());
        let coming = tracks.iter().filter(|track| !is_settled || is_arriving(**track));
        let known = coming.filter_map(|track| Some((*track, rate(track)?)));
        known.rev().max_by_key(|(_, rate): &(u8, u64)| *rate).map(|(track, _)| track)
    }

    /// Updates a request to a parent to the present position and demand.
    pub(crate) fn update_request(&self, request: &mut SubscribeRequest) {
        let progress = self.progress.borrow().clone();
        request.after = progress.next.checked_sub(1).map(|last| (progress.run, last));
        let demand = self.demand.borrow().clone();
        if demand.legs > 0 {
            (request.level, request.tracks) = (demand.level, demand.tracks);
            request.latency_ms = u32::try_from(demand.latency.as_millis()).unwrap_or(u32::MAX);
        }
    }

    /// Updates the statistics of frames from the parent.
    pub fn update_intake(&self, change: impl FnOnce(&mut StreamStatus)) {
        change(&mut self.state.lock().status);
    }

    /// The stream's status.
    pub fn status(&self) -> StreamStatus {
        let about = self.about();
        let progress = self.progress.borrow().clone();
        let state = self.state.lock();
        let is_ended = progress.ended.map(|why| why.to_string());
        StreamStatus {
            name: Some(self.name.clone()),
            origin: Some(about.origin),
            published_by: match &state.source {
                Source::Publisher(publisher) => Some(publisher.clone()),
                _ => None,
            },
            parent: match &state.source {
                Source::Parent(route) => Some(route.clone()),
                _ => None,
            },
            run: progress.run,
            next: progress.next,
            ended: is_ended,
            latency_ms: about.latency_ms,
            rates: about.tracks.iter().map(|track| track.rates).collect(),
            tracks: about.tracks.into_iter().map(|track| track.label).collect(),
            held_bytes: state.ring.bytes() as u64,
            has_all_renditions: self.has_all_renditions(&state),
            legs: state.legs.values().cloned().collect(),
            ..state.status.clone()
        }
    }
}

/// The quality for a request of a level and tracks: the only requested track, else all tracks.
pub fn requested_quality(level: Level, tracks: &[u8]) -> Quality {
    Quality { track: if let [one] = tracks { Some(*one) } else { None }, level }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Stream {
        let name: Name = "camera".parse().unwrap();
        Stream::new(name.clone(), Clock::start(), &Settings::default(), name, true)
    }

    fn lost(sequence: u64) -> Entry {
        Entry::Lost(thalweg_wire::stream::leg::LostFrame {
            sequence,
            track: 0,
            class: 2,
            why: DropReason::Room,
        })
    }

    #[test]
    fn numbers_far_ahead_within_a_run_are_refused() {
        let stream = stream();
        let about = |run| Accepted { run, ..stream.about() };
        assert!(stream.begin(about(7), Source::Absent, 1 << 61), "a new run begins anywhere");
        assert!(stream.add_received(lost((1 << 61) + 5)));
        assert!(!stream.add_received(lost((1 << 61) + 7 + MAX_GAP)));
        assert!(stream.add_received(lost((1 << 61) + 6)), "the refused number changed nothing");
        assert!(!stream.begin(about(7), Source::Absent, 1 << 62));
        assert!(stream.begin(about(8), Source::Absent, 0));
    }

    #[test]
    fn a_run_is_known_from_each_parent_that_has_sent_it() {
        let stream = stream();
        let about = |run| Accepted { run, ..stream.about() };
        let [relay, origin]: [Name; 2] = ["relay", "origin"].map(|name| name.parse().unwrap());
        let from = |node: &Name| Source::Parent(ParentRoute::direct(node.clone()));
        assert!(
            stream.begin(about(7), from(&relay), 0) && stream.begin(about(7), from(&origin), 0)
        );
        assert!(stream.has_come_from(&relay) && stream.has_come_from(&origin));
        assert!(stream.begin(about(8), from(&origin), 0));
        assert!(!stream.has_come_from(&relay), "another run");
    }
}
