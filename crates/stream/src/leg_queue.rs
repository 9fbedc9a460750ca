//! What waits for one leg, and what is left out so that the rest comes in time. Pure.
//!
//! ```text
//! push: level ─► chain ─► waits, in order ─► pop: deadline ─► the socket, which holds next to nothing
//!                            │ more than the leg sends in time
//!                            └► left out: what nothing refers to; then the ends of chains; then key frames;
//!                               tables and sound last
//! ```

use crate::{Entry, FrameClass, Numbered, chains::Chains, numbered::is_video};
use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::Arc,
    time::Duration,
};
use thalweg_units::{Rate, Time};
use thalweg_wire::stream::leg::{CLASSES, Level, Lost, MAX_LOST, Why};

/// What of a stream goes over a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quality {
    /// The rendition; `None`: all.
    pub track: Option<u8>,
    /// Which of its frames.
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
    /// The oldest that a frame may be when it arrives at the last subscriber.
    pub latency: Duration,
    /// What waits takes no more.
    pub bytes: usize,
}

/// Of the latency what may be spent waiting for this leg; the rest is for the network and the queues behind it.
const WAIT: f64 = 0.5;

/// The least that may wait, whatever the rate: three packets.
const LEAST: usize = 4500;

/// Frames left out whose loss has not been told yet; with more the oldest are told to nobody, and the child takes its
/// chains for broken, which is the safe side.
const MOST_LOST: usize = 4096;

/// Frames that may wait: a minute of pictures and sound. Those without bytes count, too.
const MOST_WAITING: usize = 8192;

/// What comes next.
#[derive(Clone, Debug)]
pub enum Next {
    /// These do not come; ascending.
    Lost(Vec<Lost>),
    /// A frame.
    Frame(Arc<Numbered>),
}

/// Frames by class.
pub type ByClass = [u64; CLASSES];

/// What became of frames since the leg began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames given to the socket.
    pub sent: ByClass,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes of frames that were wanted: of the level that goes, or would if the leg took it.
    pub wanted: u64,
    /// Frames left out, by reason.
    pub dropped: BTreeMap<Why, ByClass>,
}

/// The queue of a leg.
#[derive(Debug)]
pub struct LegQueue {
    bounds: Bounds,
    quality: Quality,
    /// A rendition that is taken as soon as a key frame of it comes.
    next_track: Option<u8>,
    rate: Option<Rate>,
    /// What the leg has still to spend, for the network and the nodes behind.
    ahead: Duration,
    waiting: VecDeque<Arc<Numbered>>,
    bytes: usize,
    lost: BTreeMap<u64, Lost>,
    /// Of what has been put in.
    chains: Chains,
    tally: Tally,
}

impl LegQueue {
    /// An empty one.
    pub fn new(bounds: Bounds, quality: Quality) -> Self {
        Self {
            bounds,
            quality,
            next_track: None,
            rate: None,
            ahead: Duration::ZERO,
            waiting: VecDeque::new(),
            bytes: 0,
            lost: BTreeMap::new(),
            chains: Chains::default(),
            tally: Tally::default(),
        }
    }

    /// The child has all that is before the first frame that comes.
    pub fn resume(&mut self) {
        self.chains = Chains::whole();
    }

    /// Whether nothing is there to be sent or told.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.lost.is_empty()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How old the oldest frame is that waits.
    pub fn delay(&self, now: Time) -> Duration {
        self.waiting.front().map_or(Duration::ZERO, |frame| frame.age(now))
    }

    /// What became of frames.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// What goes.
    pub fn quality(&self) -> Quality {
        Quality { track: self.next_track.or(self.quality.track), ..self.quality }
    }

    /// What the leg sends when it is kept busy, and how long frames are on their way behind it; `None`: not known.
    pub fn set_path(&mut self, rate: Option<Rate>, ahead: Duration) {
        (self.rate, self.ahead) = (rate, ahead.min(self.bounds.latency / 2));
    }

    /// Its bounds.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// Other bounds.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.bounds = bounds;
    }

    /// Something else is to go from now on: a lower level at once; more references from the next key frame on; another
    /// rendition as soon as a key frame of it comes.
    pub fn set_quality(&mut self, quality: Quality) {
        if quality.level > Level::Keys && self.quality.level == Level::Keys {
            // References since the last key frame did not go.
            self.chains.lost_unknown();
        }
        self.quality.level = quality.level;
        match (quality.track, self.quality.track) {
            (Some(new), Some(old)) if new != old => self.next_track = Some(new),
            (track, _) => (self.quality.track, self.next_track) = (track, None),
        }
        self.filter();
    }

    /// What waits and is not wanted any more.
    fn filter(&mut self) {
        let level = self.quality.level;
        let (kept, left) = mem::take(&mut self.waiting)
            .into_iter()
            .partition::<VecDeque<_>, _>(|frame| level.takes(frame.frame.class as u8));
        self.waiting = kept;
        for frame in left {
            self.bytes -= frame.frame.bytes.len();
            self.leave_out(frame.lost(Why::Level));
        }
    }

    /// The stream goes on, at this place.
    pub fn push(&mut self, entry: Entry, now: Time) {
        let frame = match entry {
            Entry::Frame(frame) => frame,
            Entry::Lost(lost) => {
                if let Some(class) = crate::numbered::class_of(lost.class) {
                    self.chains.lost(lost.track, class);
                }
                return self.leave_out(Lost { why: Why::Upstream, ..lost });
            }
        };
        self.switch(&frame);
        let class = frame.frame.class;
        if !self.wants(&frame) {
            return self.leave_out(frame.lost(Why::Level));
        }
        self.tally.wanted += frame.frame.bytes.len() as u64;
        if !self.chains.take(frame.frame.track, class) {
            return self.leave_out(frame.lost(Why::Chain));
        }
        self.bytes += frame.frame.bytes.len();
        self.waiting.push_back(frame);
        self.expire(now);
        while self.is_full() && self.evict() {}
    }

    /// Takes the rendition that is to come, at its key frame.
    fn switch(&mut self, frame: &Numbered) {
        let is_its = Some(frame.frame.track) == self.next_track;
        if is_its && frame.frame.class == FrameClass::Key {
            self.quality.track = self.next_track.take();
        }
    }

    fn wants(&self, frame: &Numbered) -> bool {
        let class = frame.frame.class;
        let is_its = self.quality.track.is_none_or(|track| track == frame.frame.track);
        self.quality.level.takes(class as u8) && (is_its || !is_video(class))
    }

    /// How many bytes may wait.
    fn is_full(&self) -> bool {
        let too_many = self.waiting.len() > MOST_WAITING;
        self.waiting.len() > 1 && (too_many || self.bytes > self.room())
    }

    fn room(&self) -> usize {
        let Some(rate) = self.rate else { return self.bounds.bytes };
        let time = self.bounds.latency.saturating_sub(self.ahead).mul_f64(WAIT);
        let bytes = rate.as_bps() as f64 / 8.0 * time.as_secs_f64();
        (bytes as usize).clamp(LEAST, self.bounds.bytes.max(LEAST))
    }

    /// Leaves out what would come too late.
    fn expire(&mut self, now: Time) {
        let latest = self.bounds.latency.saturating_sub(self.ahead);
        while let Some(at) = self.waiting.iter().position(|frame| frame.age(now) > latest) {
            self.remove(at, Why::Late);
        }
    }

    /// Leaves out the least valuable frame; whether there was one.
    fn evict(&mut self) -> bool {
        let of = |class: FrameClass| {
            self.waiting.iter().position(move |frame| frame.frame.class == class)
        };
        let victim = of(FrameClass::Disposable)
            .or_else(|| self.chains_end())
            .or_else(|| of(FrameClass::Key))
            .or_else(|| of(FrameClass::Audio))
            .or_else(|| of(FrameClass::Tables));
        victim.is_some_and(|at| {
            self.remove(at, Why::Room);
            true
        })
    }

    /// The reference whose loss costs least: the last one before a key frame of its track, or the newest of all.
    fn chains_end(&self) -> Option<usize> {
        let is_reference = |at: &usize| self.waiting[*at].frame.class == FrameClass::Reference;
        let ends = |at: &usize| {
            let track = self.waiting[*at].frame.track;
            let later = self.waiting.iter().skip(at + 1);
            let mut later = later.filter(|f| f.frame.track == track && is_video(f.frame.class));
            later.next().is_some_and(|next| next.frame.class == FrameClass::Key)
        };
        let all = 0..self.waiting.len();
        let closed = all.clone().filter(is_reference).find(ends);
        closed.or_else(|| all.rev().find(is_reference))
    }

    /// Leaves out a frame that waits, and what refers to it.
    fn remove(&mut self, at: usize, why: Why) {
        let Some(frame) = self.waiting.remove(at) else { return };
        self.bytes -= frame.frame.bytes.len();
        let (track, class) = (frame.frame.track, frame.frame.class);
        self.leave_out(frame.lost(why));
        if !matches!(class, FrameClass::Key | FrameClass::Reference) {
            return;
        }
        // Up to the next key frame of the track, be it here or still to come.
        let mut at = at;
        while let Some(frame) = self.waiting.get(at) {
            let is_its = frame.frame.track == track && is_video(frame.frame.class);
            match is_its {
                true if frame.frame.class == FrameClass::Key => return,
                true => {
                    let lost = frame.lost(Why::Chain);
                    self.bytes -= frame.frame.bytes.len();
                    self.waiting.remove(at);
                    self.leave_out(lost);
                }
                false => at += 1,
            }
        }
        self.chains.lost(track, class);
    }

    fn leave_out(&mut self, lost: Lost) {
        let by_class = self.tally.dropped.entry(lost.why).or_default();
        if let Some(count) = by_class.get_mut(usize::from(lost.class)) {
            *count += 1;
        }
        self.lost.insert(lost.sequence, lost);
        if self.lost.len() > MOST_LOST {
            self.lost.pop_first();
        }
    }

    /// What is to be sent next: before each frame, which of those before it do not come.
    pub fn pop(&mut self, now: Time) -> Option<Next> {
        self.expire(now);
        let upto = self.waiting.front().map_or(u64::MAX, |frame| frame.sequence);
        if self.lost.first_key_value().is_some_and(|(first, _)| *first < upto) {
            let rest = self.lost.split_off(&upto);
            let mut told: Vec<Lost> = mem::replace(&mut self.lost, rest).into_values().collect();
            for lost in told.split_off(told.len().min(MAX_LOST)) {
                self.lost.insert(lost.sequence, lost);
            }
            return Some(Next::Lost(told));
        }
        let frame = self.waiting.pop_front()?;
        self.bytes -= frame.frame.bytes.len();
        self.tally.sent[frame.frame.class as usize] += 1;
        self.tally.bytes += frame.frame.bytes.len() as u64;
        Some(Next::Frame(frame))
    }

    /// A frame that was taken is not sent after all; what refers to it does not go either.
    pub fn give_up(&mut self) {
        self.chains.lost_unknown();
    }
}

#[cfg(test)]
#[path = "leg_queue_tests.rs"]
mod tests;
