//! The frames of a leg's queue, in order, with the indices that make each step logarithmic. Pure.

use crate::NumberedFrame;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use thalweg_media::FrameClass;
use thalweg_units::Time;
use thalweg_wire::stream::leg::{CLASSES, MAX_TRACKS};

/// Frames by their numbers.
#[derive(Debug, Default)]
pub struct FrameQueue {
    frames: BTreeMap<u64, Arc<NumberedFrame>>,
    bytes: usize,
    by_birth: BTreeSet<(Time, u64)>,
    by_class: [BTreeSet<u64>; CLASSES],
    /// The pictures of each track.
    video: [BTreeMap<u64, FrameClass>; MAX_TRACKS],
    /// Reference frames before a key frame of their track: no queued frame refers to them.
    last_of_group: BTreeSet<u64>,
}

impl FrameQueue {
    /// Whether there is no frame.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// The bytes of all frames.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first frame.
    pub fn front(&self) -> Option<&Arc<NumberedFrame>> {
        self.frames.first_key_value().map(|(_, frame)| frame)
    }

    /// The number of the frame with the earliest birth, and that birth.
    pub fn oldest(&self) -> Option<(Time, u64)> {
        self.by_birth.first().copied()
    }

    /// Adds a frame of a track below [`MAX_TRACKS`]. One with the same number is replaced.
    pub fn insert(&mut self, frame: Arc<NumberedFrame>) {
        let (at, track, class) = (frame.sequence, frame.frame.track, frame.frame.class);
        self.remove(at);
        self.bytes += frame.frame.bytes.len();
        self.by_birth.insert((frame.born, at));
        self.by_class[class as usize].insert(at);
        self.frames.insert(at, frame);
        if let Some(video) = self.video_mut(track, class) {
            video.insert(at, class);
            self.relink(track, at);
        }
    }

    /// Removes a frame.
    pub fn remove(&mut self, at: u64) -> Option<Arc<NumberedFrame>> {
        let frame = self.frames.remove(&at)?;
        let (track, class) = (frame.frame.track, frame.frame.class);
        self.bytes -= frame.frame.bytes.len();
        self.by_birth.remove(&(frame.born, at));
        self.by_class[class as usize].remove(&at);
        self.last_of_group.remove(&at);
        if let Some(video) = self.video_mut(track, class) {
            video.remove(&at);
            self.relink(track, at);
        }
        Some(frame)
    }

    /// Removes the first frame.
    pub fn pop_front(&mut self) -> Option<Arc<NumberedFrame>> {
        let (at, _) = self.frames.first_key_value()?;
        self.remove(*at)
    }

    fn video_mut(
        &mut self,
        track: u8,
        class: FrameClass,
    ) -> Option<&mut BTreeMap<u64, FrameClass>> {
        self.video.get_mut(usize::from(track)).filter(|_| class.is_video())
    }

    /// Updates which reference frames at and before this number end a group.
    fn relink(&mut self, track: u8, at: u64) {
        let video = &self.video[usize::from(track)];
        let mut upto = video.range(..=at).rev().map(|(at, class)| (*at, *class));
        let mut next = video.range(at + 1..).next().map(|(_, class)| *class);
        for _ in 0..2 {
            let Some((at, class)) = upto.next() else { return };
            if class == FrameClass::Reference && next == Some(FrameClass::Key) {
                self.last_of_group.insert(at);
            } else {
                self.last_of_group.remove(&at);
            }
            next = Some(class);
        }
    }

    /// The frame whose loss costs least: the first disposable one, then the last reference frame of a group, then the
    /// newest reference frame, then key frames, audio and tables.
    pub fn cheapest(&self) -> Option<u64> {
        let first = |class: FrameClass| self.by_class[class as usize].first();
        let at = first(FrameClass::Disposable)
            .or_else(|| self.last_of_group.first())
            .or_else(|| self.by_class[FrameClass::Reference as usize].last())
            .or_else(|| first(FrameClass::Key))
            .or_else(|| first(FrameClass::Audio))
            .or_else(|| first(FrameClass::Tables));
        at.copied()
    }

    /// The picture of the track after this number.
    pub fn next_picture(&self, track: u8, after: u64) -> Option<(u64, FrameClass)> {
        let video = self.video.get(usize::from(track))?;
        video.range(after + 1..).next().map(|(at, class)| (*at, *class))
    }

    /// The numbers of the frames of a class.
    pub fn numbers_of_class(&self, class: FrameClass) -> impl Iterator<Item = u64> + '_ {
        self.by_class[class as usize].iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::time::Duration;
    use thalweg_media::Frame;

    fn frame(sequence: u64, track: u8, class: FrameClass, born: u64) -> Arc<NumberedFrame> {
        let frame =
            Frame { track, class, time: Duration::ZERO, bytes: Bytes::from_static(&[0; 3]) };
        Arc::new(NumberedFrame { sequence, born: Time::from_nanos(born), frame })
    }

    /// The rule in plain words, by looking at every frame.
    fn cheapest(frames: &BTreeMap<u64, Arc<NumberedFrame>>) -> Option<u64> {
        let of = |class| frames.values().find(|one| one.frame.class == class);
        let references = || frames.values().filter(|one| one.frame.class == FrameClass::Reference);
        let ends_group = |one: &&Arc<NumberedFrame>| {
            let mut later = frames.range(one.sequence + 1..).map(|(_, later)| later);
            let next = later
                .find(|later| later.frame.track == one.frame.track && later.frame.class.is_video());
            next.is_some_and(|next| next.frame.class == FrameClass::Key)
        };
        let found = of(FrameClass::Disposable)
            .or_else(|| references().find(ends_group))
            .or_else(|| references().next_back())
            .or_else(|| of(FrameClass::Key))
            .or_else(|| of(FrameClass::Audio))
            .or_else(|| of(FrameClass::Tables));
        found.map(|one| one.sequence)
    }

    proptest! {
        #[test]
        fn the_indices_agree_with_the_frames(
            steps in prop::collection::vec((0..12_u8, 0..2_u8, 0..5_u8, 0..50_u64), 1..120),
        ) {
            let (mut queue, mut frames) = (FrameQueue::default(), BTreeMap::new());
            for (sequence, (step, track, class, born)) in (0..).zip(steps) {
                match step {
                    0 => prop_assert_eq!(
                        queue.pop_front().map(|one| one.sequence),
                        frames.pop_first().map(|(at, _)| at)
                    ),
                    1..=4 => {
                        let at = queue.cheapest();
                        prop_assert_eq!(at, cheapest(&frames));
                        at.map(|at| (queue.remove(at), frames.remove(&at)));
                    }
                    _ => {
                        let class = FrameClass::from_number(class).unwrap();
                        let one = frame(sequence, track, class, born);
                        queue.insert(Arc::clone(&one));
                        frames.insert(sequence, one);
                    }
                }
                prop_assert_eq!((queue.len(), queue.bytes()), (frames.len(), 3 * frames.len()));
                let oldest = frames.values().map(|one| (one.born, one.sequence)).min();
                prop_assert_eq!(queue.oldest(), oldest);
                prop_assert_eq!(queue.cheapest(), cheapest(&frames));
            }
        }
    }
}
