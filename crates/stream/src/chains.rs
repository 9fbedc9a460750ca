//! Which frames can be decoded: of each track, whether all that the next frame refers to has come. Pure.

use crate::{FrameClass, numbered::is_video};
use thalweg_wire::stream::leg::MAX_TRACKS;

/// The chains of references of a stream's tracks. At the beginning all are broken: decoding begins at a key frame.
#[derive(Clone, Debug)]
pub struct Chains {
    is_whole: [bool; MAX_TRACKS],
}

impl Default for Chains {
    fn default() -> Self {
        Self { is_whole: [false; MAX_TRACKS] }
    }
}

impl Chains {
    /// Of somebody who has all that came before.
    pub fn whole() -> Self {
        Self { is_whole: [true; MAX_TRACKS] }
    }

    /// Whether a frame that comes now can be decoded. A key frame mends its track's chain.
    pub fn take(&mut self, track: u8, class: FrameClass) -> bool {
        let Some(is_whole) = self.is_whole.get_mut(usize::from(track)) else { return false };
        *is_whole |= class == FrameClass::Key;
        !is_video(class) || *is_whole
    }

    /// A frame does not come: one that others refer to breaks its track's chain.
    pub fn lost(&mut self, track: u8, class: FrameClass) {
        if matches!(class, FrameClass::Key | FrameClass::Reference)
            && let Some(is_whole) = self.is_whole.get_mut(usize::from(track))
        {
            *is_whole = false;
        }
    }

    /// Frames are missing of which nothing is known.
    pub fn lost_unknown(&mut self) {
        *self = Self::default();
    }

    /// Whether frames that refer to others can be decoded.
    pub fn is_whole(&self, track: u8) -> bool {
        self.is_whole.get(usize::from(track)).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FrameClass::{Audio, Disposable, Key, Reference, Tables};

    #[test]
    fn a_broken_chain_resumes_at_the_next_key_frame_of_its_track() {
        let mut chains = Chains::default();
        assert!(!chains.take(0, Reference) && chains.take(0, Tables) && chains.take(0, Audio));
        assert!(chains.take(0, Key) && chains.take(1, Key));
        chains.lost(0, Disposable);
        assert!(chains.take(0, Reference));
        chains.lost(0, Reference);
        assert!(
            !chains.take(0, Disposable) && !chains.take(0, Reference) && chains.take(1, Reference)
        );
        assert!(chains.take(0, Key) && chains.take(0, Disposable));
        chains.lost_unknown();
        assert!(!chains.take(1, Reference) && !chains.take(99, Key));
    }
}
