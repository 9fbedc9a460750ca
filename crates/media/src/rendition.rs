//! Selects the frames of one rendition at a time, so that a decoder sees a single video.

use crate::{Frame, FrameClass, MAX_TRACKS, chain::ReferenceChain, pes::PesHeader};
use std::time::Duration;

/// How long frames are held for an aligned key frame of another rendition.
const HOLD: Duration = Duration::from_secs(1);

/// The maximum size of held frames, bytes.
const MAX_HELD: usize = 16 << 20;

/// The most pictures held back: more than [`HOLD`] has at 240 a second. Pictures may be empty and have equal times.
const MAX_HELD_PICTURES: usize = 256;

/// Key frames of two renditions that are at most this far apart are aligned.
const ALIGNED: Duration = Duration::from_millis(20);

/// A rendition without frames for this long is not awaited.
const MAX_SILENCE: Duration = Duration::from_secs(2);

/// A picture, and whether it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PictureUse {
    Shown(Frame),
    /// Shown as the first picture of another rendition.
    Switched(Frame),
    /// Not shown, but its clock references may be needed.
    Withheld(Frame),
}

/// Selects one rendition of a ladder, and switches at key frames.
#[derive(Clone, Debug, Default)]
pub(crate) struct RenditionSelector {
    chains: [ReferenceChain; MAX_TRACKS],
    last_seen: [Option<Duration>; MAX_TRACKS],
    current: Option<u8>,
    wanted: Option<u8>,
    /// The time of the latest shown picture.
    newest: Option<Duration>,
    /// Pictures of the current rendition from a key frame on, until the key frame of the wanted rendition arrives.
    held: Vec<Frame>,
    held_bytes: usize,
    /// Whether nothing is held until the next key frame.
    has_given_up: bool,
}

impl RenditionSelector {
    /// The shown rendition.
    pub(crate) fn current(&self) -> Option<u8> {
        self.current
    }

    /// Continues with a rendition whose pictures have been shown until now.
    pub(crate) fn continue_with(&mut self, track: u8, chain: ReferenceChain) {
        self.current = Some(track);
        if let Some(own) = self.chains.get_mut(usize::from(track)) {
            *own = chain;
        }
    }

    /// Selects the rendition from its next key frame on.
    pub(crate) fn select(&mut self, track: u8) {
        self.wanted = Some(track);
        self.has_given_up = false;
    }

    pub(crate) fn record_loss(&mut self, track: u8, class: FrameClass) {
        if let Some(chain) = self.chains.get_mut(usize::from(track)) {
            chain.record_loss(class);
        }
    }

    /// Adds a picture, and appends those that are decided.
    pub(crate) fn push(&mut self, frame: &Frame, into: &mut Vec<PictureUse>) {
        let index = usize::from(frame.track);
        let Some(chain) = self.chains.get_mut(index) else {
            return into.push(PictureUse::Withheld(frame.clone()));
        };
        let pts = PesHeader::from_packets(&frame.bytes).and_then(|head| head.pts);
        let can_be_decoded = chain.advance(frame.class, pts);
        self.last_seen[index] = Some(frame.time);
        if !can_be_decoded {
            return into.push(PictureUse::Withheld(frame.clone()));
        }
        let is_wanted = self.wanted.is_none_or(|wanted| wanted == frame.track);
        match self.current {
            Some(current) if current == frame.track => self.continue_current(frame, into),
            None if is_wanted && frame.class == FrameClass::Key => self.show_switched(frame, into),
            Some(_) if self.wanted == Some(frame.track) && frame.class == FrameClass::Key => {
                self.switch_at_key(frame, into);
            }
            _ => into.push(PictureUse::Withheld(frame.clone())),
        }
    }

    /// Ends the stream: releases the held pictures.
    pub(crate) fn end(&mut self, into: &mut Vec<PictureUse>) {
        self.release_held(into);
    }

    /// Shows or holds a picture of the current rendition.
    fn continue_current(&mut self, frame: &Frame, into: &mut Vec<PictureUse>) {
        if frame.class == FrameClass::Key {
            self.has_given_up = false;
        }
        let last_seen =
            self.pending_track().and_then(|track| *self.last_seen.get(usize::from(track))?);
        let is_alive =
            last_seen.is_some_and(|last_seen| frame.time.saturating_sub(last_seen) < MAX_SILENCE);
        let may_hold = frame.class == FrameClass::Key && is_alive;
        if self.held.is_empty() && !may_hold || self.has_given_up {
            self.newest = self.newest.max(Some(frame.time));
            return into.push(PictureUse::Shown(frame.clone()));
        }
        // The second key frame: no aligned one of the wanted rendition arrived near the first one.
        if may_hold && !self.held.is_empty() {
            self.release_held(into);
        }
        self.held_bytes += frame.bytes.len();
        self.held.push(frame.clone());
        let first = self.held.first().map_or(frame.time, |first| first.time);
        let is_full = self.held_bytes > MAX_HELD || self.held.len() >= MAX_HELD_PICTURES;
        if frame.time.saturating_sub(first) > HOLD || is_full {
            self.has_given_up = true;
            self.release_held(into);
        }
    }

    /// The wanted rendition if it is not the current one.
    fn pending_track(&self) -> Option<u8> {
        self.wanted.filter(|wanted| Some(*wanted) != self.current)
    }

    fn release_held(&mut self, into: &mut Vec<PictureUse>) {
        self.held_bytes = 0;
        for frame in std::mem::take(&mut self.held) {
            self.newest = self.newest.max(Some(frame.time));
            into.push(PictureUse::Shown(frame));
        }
    }

    /// Switches at a key frame of the wanted rendition, which replaces the held pictures from its time on.
    fn switch_at_key(&mut self, frame: &Frame, into: &mut Vec<PictureUse>) {
        if self.newest.is_some_and(|newest| frame.time <= newest) {
            return into.push(PictureUse::Withheld(frame.clone()));
        }
        let first = self.held.first().map(|first| first.time);
        if first.is_some_and(|first| frame.time + ALIGNED < first) {
            // It is earlier than all held pictures.
            return into.push(PictureUse::Withheld(frame.clone()));
        }
        let held = std::mem::take(&mut self.held);
        self.held_bytes = 0;
        let is_before = |held: &Frame| held.time + ALIGNED < frame.time;
        let (before, after): (Vec<Frame>, Vec<Frame>) = held.into_iter().partition(is_before);
        into.extend(before.into_iter().map(PictureUse::Shown));
        self.show_switched(frame, into);
        // They follow it, so that their clock references are not ahead of it.
        into.extend(after.into_iter().map(PictureUse::Withheld));
    }

    fn show_switched(&mut self, frame: &Frame, into: &mut Vec<PictureUse>) {
        self.current = Some(frame.track);
        self.has_given_up = false;
        self.newest = self.newest.max(Some(frame.time));
        into.push(PictureUse::Switched(frame.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FrameClass::{Key, Reference};

    fn frame(track: u8, class: FrameClass, millis: u64) -> Frame {
        let time = Duration::from_millis(millis);
        Frame { track, class, time, bytes: vec![track; 10].into() }
    }

    /// The tracks and times of shown pictures, with an exclamation mark at switches.
    fn shown(taken: &[PictureUse]) -> Vec<String> {
        taken
            .iter()
            .filter_map(|taken| match taken {
                PictureUse::Shown(f) => Some(format!("{}@{}", f.track, f.time.as_millis())),
                PictureUse::Switched(f) => Some(format!("{}@{}!", f.track, f.time.as_millis())),
                PictureUse::Withheld(_) => None,
            })
            .collect()
    }

    /// Two renditions of five pictures a second, of which each fifth is a key frame. The pictures of `first` precede.
    fn ladder(first: u8, seconds: u64) -> Vec<Frame> {
        let times = (0..seconds * 5).map(|n| (n * 200, if n % 5 == 0 { Key } else { Reference }));
        times
            .flat_map(|(at, class)| [frame(first, class, at), frame(1 - first, class, at)])
            .collect()
    }

    #[test]
    fn a_rendition_changes_at_aligned_key_frames_whichever_comes_first() {
        for first in [0, 1] {
            let (mut rendition, mut taken) = (RenditionSelector::default(), Vec::new());
            rendition.select(0);
            for frame in ladder(first, 3) {
                if frame.time == Duration::from_millis(400) {
                    rendition.select(1);
                }
                rendition.push(&frame, &mut taken);
            }
            rendition.end(&mut taken);
            let expected: Vec<String> = (0..15)
                .map(|n| match n {
                    0 => "0@0!".to_owned(),
                    5 => "1@1000!".to_owned(),
                    n => format!("{}@{}", u8::from(n > 5), n * 200),
                })
                .collect();
            assert_eq!(shown(&taken), expected, "{first} first");
            assert_eq!(taken.len(), 30);
        }
    }

    #[test]
    fn a_rendition_without_frames_is_not_awaited() {
        let (mut rendition, mut taken) = (RenditionSelector::default(), Vec::new());
        rendition.push(&frame(0, Key, 0), &mut taken);
        rendition.select(1);
        for n in 1..20 {
            let class = if n % 5 == 0 { Key } else { Reference };
            rendition.push(&frame(0, class, n * 200), &mut taken);
            assert_eq!(taken.len() as u64, n + 1);
        }
        // From here on only the other rendition has frames.
        rendition.push(&frame(1, Reference, 4200), &mut taken);
        rendition.push(&frame(1, Key, 5000), &mut taken);
        assert_eq!(shown(&taken).last().map(String::as_str), Some("1@5000!"));
        assert_eq!(shown(&taken).len(), 21);
    }

    #[test]
    fn held_pictures_are_shown_if_no_aligned_key_frame_arrives() {
        let (mut rendition, mut taken) = (RenditionSelector::default(), Vec::new());
        rendition.push(&frame(0, Key, 0), &mut taken);
        rendition.select(1);
        rendition.push(&frame(1, Reference, 100), &mut taken);
        rendition.push(&frame(0, Key, 1000), &mut taken);
        assert_eq!(shown(&taken), ["0@0!"]);
        for n in 1..8 {
            rendition.push(&frame(0, Reference, 1000 + 200 * n), &mut taken);
        }
        assert_eq!(shown(&taken).len(), 9);
        // Its key frames are between those of the current one: it is switched at the first one that is not too early.
        rendition.push(&frame(1, Key, 2300), &mut taken);
        assert_eq!(shown(&taken).last().map(String::as_str), Some("0@2400"));
        rendition.push(&frame(1, Key, 2500), &mut taken);
        assert_eq!(shown(&taken).last().map(String::as_str), Some("1@2500!"));
    }

    #[test]
    fn a_lost_reference_breaks_only_its_own_chain() {
        let (mut rendition, mut taken) = (RenditionSelector::default(), Vec::new());
        rendition.push(&frame(0, Key, 0), &mut taken);
        rendition.record_loss(1, Reference);
        rendition.push(&frame(0, Reference, 200), &mut taken);
        rendition.record_loss(0, Reference);
        rendition.push(&frame(0, Reference, 600), &mut taken);
        rendition.push(&frame(0, Key, 1000), &mut taken);
        rendition.push(&frame(99, Key, 1000), &mut taken);
        assert_eq!(shown(&taken), ["0@0!", "0@200", "0@1000"]);
    }
}
