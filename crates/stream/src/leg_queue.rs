//! The queue of one leg, which drops frames so that the others arrive in time. Pure.
//!
//! ```text
//! push: level ─► chain ─► queue, in order ─► pop: deadline ─► the socket, which buffers next to nothing
//!                            │ more than the leg sends in time
//!                            └► drop disposable frames; then ends of chains; then key frames;
//!                               tables and audio last
//! ```

use crate::{Entry, FrameClass, NumberedFrame, chains::Chains, entry::is_video};
use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};
use thalweg_units::{Rate, Time};
use thalweg_wire::stream::leg::{CLASSES, Level, Lost, MAX_LOST, Why};

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

/// The next item to send.
#[derive(Clone, Debug)]
pub enum Next {
    /// Notices of lost frames, ascending.
    Lost(Vec<Lost>),
    /// A frame.
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
    pub dropped: BTreeMap<Why, ByClass>,
}

/// The queue of a leg.
#[derive(Debug)]
pub struct LegQueue {
    bounds: Bounds,
    quality: Quality,
    /// The rendition to switch to at its next key frame.
    next_track: Option<u8>,
    rate: Option<Rate>,
    /// The delay behind the queue: the network and later nodes.
    downstream: Duration,
    queued: VecDeque<Arc<NumberedFrame>>,
    bytes: usize,
    lost: BTreeMap<u64, Lost>,
    /// Covers the frames pushed so far.
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
            rate: None,
            downstream: Duration::ZERO,
            queued: VecDeque::new(),
            bytes: 0,
            lost: BTreeMap::new(),
            chains: Chains::default(),
            tally: Tally::default(),
        }
    }

    /// Marks all chains as whole, because the child has all earlier frames.
    pub fn resume(&mut self) {
        self.chains = Chains::whole();
    }

    /// Whether there is neither a frame nor a loss notice to send.
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.lost.is_empty()
    }

    /// The bytes in the queue.
    pub fn bytes(&self) -> usize {
        self.bytes
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
        let (kept, excluded) = mem::take(&mut self.queued)
            .into_iter()
            .partition::<VecDeque<_>, _>(|frame| level.takes(frame.frame.class as u8));
        self.queued = kept;
        for frame in excluded {
            self.bytes -= frame.frame.bytes.len();
            self.drop_frame(frame.to_lost(Why::Level));
        }
    }

    /// Adds the stream's next entry.
    pub fn push(&mut self, entry: Entry, now: Time) {
        let frame = match entry {
            Entry::Frame(frame) => frame,
            Entry::Lost(lost) => {
                if let Some(class) = crate::entry::class_of(lost.class) {
                    self.chains.record_loss(lost.track, class);
                }
                return self.drop_frame(Lost { why: Why::Upstream, ..lost });
            }
        };
        self.switch_track(&frame);
        let class = frame.frame.class;
        if !self.wants(&frame) {
            // If the track is wanted again, its next frames refer to this one.
            self.chains.record_loss(frame.frame.track, class);
            return self.drop_frame(frame.to_lost(Why::Level));
        }
        self.tally.wanted += frame.frame.bytes.len() as u64;
        if !self.chains.accept(frame.frame.track, class) {
            return self.drop_frame(frame.to_lost(Why::Chain));
        }
        self.bytes += frame.frame.bytes.len();
        self.queued.push_back(frame);
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

    fn wants(&self, frame: &NumberedFrame) -> bool {
        let class = frame.frame.class;
        let is_its = self.quality.track.is_none_or(|track| track == frame.frame.track);
        self.quality.level.takes(class as u8) && (is_its || !is_video(class))
    }

    /// Whether the queue exceeds its capacity in frames or bytes.
    fn is_full(&self) -> bool {
        let too_many = self.queued.len() > MAX_QUEUED;
        self.queued.len() > 1 && (too_many || self.bytes > self.capacity())
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
        while let Some(at) = self.queued.iter().position(|frame| frame.age(now) > latest) {
            self.remove(at, Why::Late);
        }
    }

    /// Drops the least valuable frame. Returns whether there was one.
    fn evict(&mut self) -> bool {
        let of = |class: FrameClass| {
            self.queued.iter().position(move |frame| frame.frame.class == class)
        };
        let victim = of(FrameClass::Disposable)
            .or_else(|| self.cheapest_reference())
            .or_else(|| of(FrameClass::Key))
            .or_else(|| of(FrameClass::Audio))
            .or_else(|| of(FrameClass::Tables));
        victim.is_some_and(|at| {
            self.remove(at, Why::Room);
            true
        })
    }

    /// The reference frame whose loss costs least: the last before a key frame of its track, else the newest.
    fn cheapest_reference(&self) -> Option<usize> {
        let is_reference = |at: &usize| self.queued[*at].frame.class == FrameClass::Reference;
        let ends = |at: &usize| {
            let track = self.queued[*at].frame.track;
            let later = self.queued.iter().skip(at + 1);
            let mut later = later.filter(|f| f.frame.track == track && is_video(f.frame.class));
            later.next().is_some_and(|next| next.frame.class == FrameClass::Key)
        };
        let all = 0..self.queued.len();
        let closed = all.clone().filter(is_reference).find(ends);
        closed.or_else(|| all.rev().find(is_reference))
    }

    /// Drops a queued frame and the frames that depend on it.
    fn remove(&mut self, at: usize, why: Why) {
        let Some(frame) = self.queued.remove(at) else { return };
        self.bytes -= frame.frame.bytes.len();
        let (track, class) = (frame.frame.track, frame.frame.class);
        self.drop_frame(frame.to_lost(why));
        if !matches!(class, FrameClass::Key | FrameClass::Reference) {
            return;
        }
        // Drop up to the track's next key frame, which may not have arrived yet.
        let mut at = at;
        while let Some(frame) = self.queued.get(at) {
            let is_its = frame.frame.track == track && is_video(frame.frame.class);
            match is_its {
                true if frame.frame.class == FrameClass::Key => return,
                true => {
                    let lost = frame.to_lost(Why::Chain);
                    self.bytes -= frame.frame.bytes.len();
                    self.queued.remove(at);
                    self.drop_frame(lost);
                }
                false => at += 1,
            }
        }
        self.chains.record_loss(track, class);
    }

    fn drop_frame(&mut self, lost: Lost) {
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
    pub fn pop(&mut self, now: Time) -> Option<Next> {
        self.expire(now);
        let next = self.queued.front().map_or(u64::MAX, |frame| frame.sequence);
        if self.lost.first_key_value().is_some_and(|(first, _)| *first < next) {
            let rest = self.lost.split_off(&next);
            let mut reported: Vec<Lost> =
                mem::replace(&mut self.lost, rest).into_values().collect();
            for lost in reported.split_off(reported.len().min(MAX_LOST)) {
                self.lost.insert(lost.sequence, lost);
            }
            return Some(Next::Lost(reported));
        }
        let frame = self.queued.pop_front()?;
        self.bytes -= frame.frame.bytes.len();
        self.tally.sent[frame.frame.class as usize] += 1;
        self.tally.bytes += frame.frame.bytes.len() as u64;
        Some(Next::Frame(frame))
    }

    /// Breaks all chains after the leg has missed entries.
    pub fn break_chains(&mut self) {
        self.chains.break_all();
    }
}

#[cfg(test)]
#[path = "leg_queue_tests.rs"]
mod tests;
