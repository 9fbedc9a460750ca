//! The queue of one leg, which drops frames so that the others arrive in time. Pure.
//!
//! ```text
//! push: level ─► chain ─► queue, in order ─► pop: deadline ─► the socket, which buffers next to nothing
//!                            │ more than the leg sends in time
//!                            └► drop disposable frames; then ends of chains; then key frames;
//!                               tables and audio last
//! ```

use crate::{Entry, NumberedFrame, chains::Chains, frame_queue::FrameQueue};
use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};
use thalweg_media::{Frame, FrameClass};
use thalweg_units::{Rate, Time};
use thalweg_wire::stream::leg::{CLASSES, DropReason, Level, LostFrame, MAX_LOST, MAX_TRACKS};

/// The part of a stream that a leg carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quality {
    /// The rendition; `None`: all.
    pub track: Option<u8>,
    /// The classes of frames.
    pub level: Level,
}

impl Default for Quality {
    fn default() -> Self {
        Self { track: None, level: Level::All }
    }
}

/// A leg's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The maximum age of a frame when it arrives at the last subscriber.
    pub latency: Duration,
    /// The maximum size of the queue.
    pub bytes: usize,
}

/// The share of the latency that a frame may wait in this queue; the rest is for the network and later queues.
const QUEUE_SHARE: f64 = 0.5;

/// The minimum capacity at any rate, bytes: three packets.
const MIN_CAPACITY: usize = 4500;

/// The most losses waiting to be reported. Beyond it the oldest are forgotten, and the child safely treats its chains
/// as broken.
const MAX_UNREPORTED: usize = 4096;

/// The most frames in the queue, so that empty frames are bounded too: a minute of video and audio.
const MAX_QUEUED: usize = 8192;

/// How long entries are held for the key frame of the next rendition: aligned encoders emit both within a picture or two.
const MAX_HOLD: Duration = Duration::from_millis(300);

/// A rendition without pictures for this long is not waited for.
const SILENCE: Duration = Duration::from_secs(1);

/// The most entries held.
const MAX_HELD: usize = 512;

/// Key frames of two renditions this close are aligned.
const ALIGNED: Duration = Duration::from_millis(20);

/// The next item to send.
#[derive(Clone, Debug)]
pub enum NextItem {
    /// Notices of lost frames, ascending.
    Lost(Vec<LostFrame>),
    Frame(Arc<NumberedFrame>),
}

/// A number of frames for each class.
pub type ByClass = [u64; CLASSES];

/// Frames sent and dropped since the leg began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames given to the socket.
    pub sent: ByClass,
    /// Bytes of frames given to the socket.
    pub bytes: u64,
    /// Bytes of frames within the present quality, sent or not.
    pub wanted: u64,
    /// Frames dropped, by reason.
    pub dropped: BTreeMap<DropReason, ByClass>,
}

/// The queue of a leg.
#[derive(Debug)]
pub struct LegQueue {
    bounds: Bounds,
    quality: Quality,
    /// The rendition to switch to at its next key frame.
    next_track: Option<u8>,
    /// The time of each rendition's newest picture.
    newest: [Option<Duration>; MAX_TRACKS],
    /// Entries from a key frame of the present rendition on, until the next rendition's aligned key frame.
    held: VecDeque<Entry>,
    held_bytes: usize,
    /// The renditions that may be sent, one bit each; zero: all.
    allowed: u16,
    rate: Option<Rate>,
    /// The delay behind the queue: the network and later nodes.
    downstream: Duration,
    queued: FrameQueue,
    lost: BTreeMap<u64, LostFrame>,
    /// The reference chains of all pushed frames.
    chains: Chains,
    tally: Tally,
}

impl LegQueue {
    /// Creates an empty queue.
    pub fn new(bounds: Bounds, quality: Quality) -> Self {
        Self {
            bounds,
            quality,
            next_track: None,
            newest: [None; MAX_TRACKS],
            held: VecDeque::new(),
            held_bytes: 0,
            allowed: 0,
            rate: None,
            downstream: Duration::ZERO,
            queued: FrameQueue::default(),
            lost: BTreeMap::new(),
            chains: Chains::default(),
            tally: Tally::default(),
        }
    }

    /// Marks all chains as intact, because the child has all earlier frames.
    pub fn resume(&mut self) {
        self.chains = Chains::intact();
    }

    /// Sets the renditions that may be sent; empty: all.
    pub fn set_tracks(&mut self, tracks: &[u8]) {
        let bits = tracks.iter().filter(|track| usize::from(**track) < MAX_TRACKS);
        self.allowed = bits.fold(0, |all, track| all | 1 << track);
    }

    /// Whether there is neither a frame nor a loss notice to send.
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.lost.is_empty()
    }

    /// The bytes in the queue.
    pub fn bytes(&self) -> usize {
        self.queued.bytes()
    }

    /// The age of the oldest frame in the queue.
    pub fn delay(&self, now: Time) -> Duration {
        self.queued.front().map_or(Duration::ZERO, |frame| frame.age(now))
    }

    /// Frames sent and dropped since the leg began.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The present quality, or the one that is being switched to.
    pub fn quality(&self) -> Quality {
        Quality { track: self.next_track.or(self.quality.track), ..self.quality }
    }

    /// Sets the rate that the leg achieves while busy (`None`: unknown) and the delay behind the queue.
    pub fn set_path(&mut self, rate: Option<Rate>, downstream: Duration) {
        (self.rate, self.downstream) = (rate, downstream.min(self.bounds.latency / 2));
    }

    /// The bounds.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Changes the bounds.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Changes the quality: a lower level applies at once, reference frames return at the next key frame, and another
    /// rendition begins at its next key frame.
    pub fn set_quality(&mut self, quality: Quality) {
        if quality.level > Level::Keys && self.quality.level == Level::Keys {
            // Reference frames since the last key frame were not sent.
            self.chains.break_all();
        }
        self.quality.level = quality.level;
        match (quality.track, self.quality.track) {
            (Some(new), Some(old)) if new != old => self.next_track = Some(new),
            (track, _) => (self.quality.track, self.next_track) = (track, None),
        }
        self.apply_level();
    }

    /// Drops the queued frames that the level excludes.
    fn apply_level(&mut self) {
        let level = self.quality.level;
        let classes = [FrameClass::Reference, FrameClass::Disposable];
        let classes = classes.into_iter().filter(|class| !level.takes(*class as u8));
        let excluded: Vec<u64> =
            classes.flat_map(|class| self.queued.numbers_of_class(class)).collect();
        for at in excluded {
            if let Some(frame) = self.queued.remove(at) {
                self.drop_frame(frame.to_lost(DropReason::Level));
            }
        }
    }

    /// Adds the stream's next entry.
    ///
    /// While the leg is to switch to another rendition, entries from a key frame of the present one on are held for a
    /// moment, because the next one's aligned key frame may follow, and no decoder can use both.
    pub fn push(&mut self, entry: Entry, now: Time) {
        if self.next_track.is_none() || self.is_hold_over(&entry) {
            self.release(None, now);
        } else if let Some(frame) = self.video_of_switch(&entry) {
            let (track, class, time) = (frame.track, frame.class, frame.time);
            let is_next = self.next_track == Some(track);
            if is_next && class == FrameClass::Key {
                self.release(Some(time), now);
            } else if !is_next && class == FrameClass::Key && self.has_next_pictures(time) {
                return self.hold(entry);
            }
        }
        if let Entry::Frame(numbered) = &entry
            && numbered.frame.class.is_video()
            && let Some(newest) = self.newest.get_mut(usize::from(numbered.frame.track))
        {
            *newest = Some(numbered.frame.time);
        }
        if self.held.is_empty() { self.add(entry, now) } else { self.hold(entry) }
    }

    /// Whether pictures of the next rendition arrive, so that a key frame can be expected.
    fn has_next_pictures(&self, now: Duration) -> bool {
        let newest = self.next_track.and_then(|track| *self.newest.get(usize::from(track))?);
        newest.is_some_and(|newest| now.saturating_sub(newest) < SILENCE)
    }

    fn hold(&mut self, entry: Entry) {
        if let Entry::Frame(numbered) = &entry {
            self.held_bytes += numbered.frame.bytes.len();
        }
        self.held.push_back(entry);
    }

    /// A picture of the present or the next rendition, if the leg is to switch.
    fn video_of_switch<'a>(&self, entry: &'a Entry) -> Option<&'a Frame> {
        let Entry::Frame(numbered) = entry else { return None };
        let frame = &numbered.frame;
        let tracks = [self.next_track?, self.quality.track?];
        (frame.class.is_video() && tracks.contains(&frame.track)).then_some(frame)
    }

    fn is_hold_over(&self, entry: &Entry) -> bool {
        let Some(Entry::Frame(first)) = self.held.front() else { return false };
        let is_late = match entry {
            Entry::Frame(next) => next.frame.time.saturating_sub(first.frame.time) > MAX_HOLD,
            Entry::Lost(_) => false,
        };
        is_late || self.held.len() >= MAX_HELD || self.held_bytes > self.bounds.bytes
    }

    /// Adds the held entries, without pictures of the present rendition from `cut` on.
    pub fn release(&mut self, cut: Option<Duration>, now: Time) {
        self.held_bytes = 0;
        for entry in mem::take(&mut self.held) {
            match &entry {
                Entry::Frame(numbered)
                    if cut.is_some_and(|cut| numbered.frame.time + ALIGNED >= cut)
                        && numbered.frame.class.is_video() =>
                {
                    self.exclude(numbered);
                }
                _ => self.add(entry, now),
            }
        }
    }

    /// Drops a frame that the quality excludes.
    fn exclude(&mut self, frame: &NumberedFrame) {
        self.chains.record_loss(frame.frame.track, frame.frame.class);
        self.drop_frame(frame.to_lost(DropReason::Level));
    }

    fn add(&mut self, entry: Entry, now: Time) {
        let frame = match entry {
            Entry::Frame(frame) => frame,
            Entry::Lost(lost) => {
                if let Some(class) = FrameClass::from_number(lost.class) {
                    self.chains.record_loss(lost.track, class);
                }
                return self.drop_frame(self.forward_loss(lost));
            }
        };
        self.switch_track(&frame);
        let class = frame.frame.class;
        if !self.wants(frame.frame.track, class) {
            return self.exclude(&frame);
        }
        self.tally.wanted += frame.frame.bytes.len() as u64;
        if !self.chains.accept(frame.frame.track, class) {
            return self.drop_frame(frame.to_lost(DropReason::Chain));
        }
        self.queued.insert(frame);
        self.expire(now);
        while self.is_full() && self.evict() {}
    }

    /// Switches to the next rendition at its key frame.
    fn switch_track(&mut self, frame: &NumberedFrame) {
        let is_its = Some(frame.frame.track) == self.next_track;
        if is_its && frame.frame.class == FrameClass::Key {
            self.quality.track = self.next_track.take();
        }
    }

    /// The notice of a frame that was lost before this leg. Frames that a request excludes are no losses of the path.
    fn forward_loss(&self, lost: LostFrame) -> LostFrame {
        let class = FrameClass::from_number(lost.class);
        let is_wanted = class.is_none_or(|class| self.wants(lost.track, class));
        let is_excluded = lost.why == DropReason::Level || !is_wanted;
        LostFrame {
            why: if is_excluded { DropReason::Level } else { DropReason::Upstream },
            ..lost
        }
    }

    fn wants(&self, track: u8, class: FrameClass) -> bool {
        let is_allowed =
            self.allowed == 0 || self.allowed.checked_shr(track.into()).unwrap_or(0) & 1 == 1;
        let is_its = is_allowed && self.quality.track.is_none_or(|wanted| wanted == track);
        self.quality.level.takes(class as u8) && (is_its || !class.is_video())
    }

    /// Whether the queue exceeds its capacity in frames or bytes.
    fn is_full(&self) -> bool {
        let too_many = self.queued.len() > MAX_QUEUED;
        self.queued.len() > 1 && (too_many || self.bytes() > self.capacity())
    }

    fn capacity(&self) -> usize {
        let Some(rate) = self.rate else { return self.bounds.bytes };
        let time = self.bounds.latency.saturating_sub(self.downstream).mul_f64(QUEUE_SHARE);
        let bytes = rate.as_bps() as f64 / 8.0 * time.as_secs_f64();
        (bytes as usize).clamp(MIN_CAPACITY, self.bounds.bytes.max(MIN_CAPACITY))
    }

    /// Drops frames that would miss their deadline.
    fn expire(&mut self, now: Time) {
        let latest = self.bounds.latency.saturating_sub(self.downstream);
        while let Some((born, at)) = self.queued.oldest()
            && now.since(born) > latest
        {
            self.remove(at, DropReason::Late);
        }
    }

    /// Drops the least valuable frame. Returns whether there was one.
    fn evict(&mut self) -> bool {
        let victim = self.queued.cheapest();
        victim.is_some_and(|at| {
            self.remove(at, DropReason::Room);
            true
        })
    }

    /// Drops a queued frame and the frames that depend on it.
    fn remove(&mut self, at: u64, why: DropReason) {
        let Some(frame) = self.queued.remove(at) else { return };
        let (track, class) = (frame.frame.track, frame.frame.class);
        self.drop_frame(frame.to_lost(why));
        if !matches!(class, FrameClass::Key | FrameClass::Reference) {
            return;
        }
        // Drop up to the track's next key frame, which may not have arrived yet.
        while let Some((next, class)) = self.queued.next_picture(track, at) {
            if class == FrameClass::Key {
                return;
            }
            if let Some(frame) = self.queued.remove(next) {
                self.drop_frame(frame.to_lost(DropReason::Chain));
            }
        }
        self.chains.record_loss(track, class);
    }

    fn drop_frame(&mut self, lost: LostFrame) {
        let by_class = self.tally.dropped.entry(lost.why).or_default();
        if let Some(count) = by_class.get_mut(usize::from(lost.class)) {
            *count += 1;
        }
        self.lost.insert(lost.sequence, lost);
        if self.lost.len() > MAX_UNREPORTED {
            self.lost.pop_first();
        }
    }

    /// Removes the next item to send. Losses are reported before the next frame.
    pub fn pop(&mut self, now: Time) -> Option<NextItem> {
        self.expire(now);
        let next = self.queued.front().map_or(u64::MAX, |frame| frame.sequence);
        let mut reported = Vec::new();
        while reported.len() < MAX_LOST
            && let Some(first) = self.lost.first_entry()
            && *first.key() < next
        {
            reported.push(first.remove());
        }
        if !reported.is_empty() {
            return Some(NextItem::Lost(reported));
        }
        let frame = self.queued.pop_front()?;
        self.tally.sent[frame.frame.class as usize] += 1;
        self.tally.bytes += frame.frame.bytes.len() as u64;
        Some(NextItem::Frame(frame))
    }

    /// Breaks all chains after the leg has missed entries.
    pub fn break_chains(&mut self) {
        self.chains.break_all();
    }
}

#[cfg(test)]
#[path = "leg_queue_tests.rs"]
mod tests;
