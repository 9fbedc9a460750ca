//! Which frames can be decoded: for each track, whether all frames that the next frame refers to are here. Pure.

use thalweg_media::FrameClass;
use thalweg_wire::stream::leg::MAX_TRACKS;

/// The reference chains of a stream's tracks. They begin broken, because decoding begins at a key frame.
#[derive(Clone, Debug)]
pub struct Chains {
    is_intact: [bool; MAX_TRACKS],
}

impl Default for Chains {
    fn default() -> Self {
        Self { is_intact: [false; MAX_TRACKS] }
    }
}

impl Chains {
    /// Chains of a receiver that has all earlier frames.
    pub fn intact() -> Self {
        Self { is_intact: [true; MAX_TRACKS] }
    }

    /// Accepts the next frame and returns whether it can be decoded. A key frame repairs its track's chain.
    pub fn accept(&mut self, track: u8, class: FrameClass) -> bool {
        let Some(is_intact) = self.is_intact.get_mut(usize::from(track)) else { return false };
        *is_intact |= class == FrameClass::Key;
        !class.is_video() || *is_intact
    }

    /// Records a lost frame. A lost key or reference frame breaks its track's chain.
    pub fn record_loss(&mut self, track: u8, class: FrameClass) {
        if matches!(class, FrameClass::Key | FrameClass::Reference)
            && let Some(is_intact) = self.is_intact.get_mut(usize::from(track))
        {
            *is_intact = false;
        }
    }

    /// Breaks all chains, because unknown frames are missing.
    pub fn break_all(&mut self) {
        *self = Self::default();
    }

    /// Whether reference and disposable frames of the track can be decoded.
    pub fn is_intact(&self, track: u8) -> bool {
        self.is_intact.get(usize::from(track)).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FrameClass::{Audio, Disposable, Key, Reference, Tables};

    #[test]
    fn a_broken_chain_resumes_at_the_next_key_frame_of_its_track() {
        let mut chains = Chains::default();
        assert!(
            !chains.accept(0, Reference) && chains.accept(0, Tables) && chains.accept(0, Audio)
        );
        assert!(chains.accept(0, Key) && chains.accept(1, Key));
        chains.record_loss(0, Disposable);
        assert!(chains.accept(0, Reference));
        chains.record_loss(0, Reference);
        assert!(
            !chains.accept(0, Disposable)
                && !chains.accept(0, Reference)
                && chains.accept(1, Reference)
        );
        assert!(chains.accept(0, Key) && chains.accept(0, Disposable));
        chains.break_all();
        assert!(!chains.accept(1, Reference) && !chains.accept(99, Key));
    }
}
