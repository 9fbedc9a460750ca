//! Tracks which frames of a video can be decoded.

use crate::{FrameClass, dts_timeline::wrapping_difference};

/// Whether the frames to which the next frame of a track may refer are all present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReferenceChain {
    /// A referenced frame is missing: decoding resumes at the next key frame.
    #[default]
    Broken,
    /// Decoding has started at the key frame with this PTS. Pictures shown before it may refer to missing frames.
    Started(Option<u64>),
    Intact,
}

impl ReferenceChain {
    /// Adds the next picture and returns whether it can be decoded.
    pub(crate) fn advance(&mut self, class: FrameClass, pts: Option<u64>) -> bool {
        let (next, is_decodable) = match (*self, class) {
            (Self::Broken, FrameClass::Key) => (Self::Started(pts), true),
            (Self::Broken, _) => (Self::Broken, false),
            (Self::Started(key), class)
                if class != FrameClass::Key && is_shown_before(pts, key) =>
            {
                (*self, false)
            }
            // Pictures that are decoded after a disposable one may still be shown before the key frame.
            (Self::Started(_), FrameClass::Disposable) => (*self, true),
            (Self::Started(_) | Self::Intact, _) => (Self::Intact, true),
        };
        *self = next;
        is_decodable
    }

    /// Records a lost picture. A lost key or reference frame breaks the chain.
    pub(crate) fn record_loss(&mut self, class: FrameClass) {
        if matches!(class, FrameClass::Key | FrameClass::Reference) {
            *self = Self::Broken;
        }
    }
}

fn is_shown_before(pts: Option<u64>, key: Option<u64>) -> bool {
    pts.zip(key).is_some_and(|(pts, key)| wrapping_difference(pts as i64, key as i64) < 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use FrameClass::{Disposable, Key, Reference};

    #[test]
    fn a_broken_chain_resumes_at_the_next_key_frame() {
        let mut chain = ReferenceChain::default();
        assert!(!chain.advance(Reference, Some(1)) && chain.advance(Key, Some(2)));
        assert!(chain.advance(Reference, Some(3)) && chain.advance(Disposable, Some(2)));
        chain.record_loss(Disposable);
        assert!(chain.advance(Reference, Some(4)));
        chain.record_loss(Reference);
        assert!(!chain.advance(Disposable, Some(5)) && chain.advance(Key, None));
        assert!(chain.advance(Reference, Some(1)));
    }

    #[test]
    fn pictures_shown_before_the_first_key_frame_are_omitted() {
        let mut chain = ReferenceChain::default();
        let key = crate::dts_timeline::WRAP as u64 - 3000;
        assert!(chain.advance(Key, Some(key)));
        assert!(!chain.advance(Reference, Some(key - 6000)));
        assert!(!chain.advance(Disposable, Some(key - 9000)));
        assert!(chain.advance(Reference, Some(6000)) && chain.advance(Disposable, Some(0)));
        // With an intact chain, they are kept.
        assert!(chain.advance(Key, Some(9000)) && chain.advance(Disposable, Some(8000)));
    }
}
