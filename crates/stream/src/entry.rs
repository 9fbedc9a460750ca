//! Numbered frames, and placeholders for lost ones.

use std::{sync::Arc, time::Duration};
use thalweg_media::Frame;
use thalweg_units::Time;
use thalweg_wire::stream::leg::{DropReason, LostFrame};

/// A frame with its position in the stream.
#[derive(Clone, Debug)]
pub struct NumberedFrame {
    /// Its number in the stream's run.
    pub sequence: u64,
    /// When it arrived at the publisher's node, by this host's clock.
    pub born: Time,
    pub frame: Frame,
}

impl NumberedFrame {
    /// The time since it arrived at the publisher's node.
    pub fn age(&self, now: Time) -> Duration {
        now.since(self.born)
    }

    /// The placeholder for this frame when it is dropped.
    pub fn to_lost(&self, why: DropReason) -> LostFrame {
        let Frame { track, class, .. } = self.frame;
        LostFrame { sequence: self.sequence, track, class: class as u8, why }
    }
}

/// An entry of a stream.
#[derive(Clone, Debug)]
pub enum Entry {
    Frame(Arc<NumberedFrame>),
    /// A frame that was lost.
    Lost(LostFrame),
}

impl Entry {
    /// Its number in the stream's run.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::Frame(frame) => frame.sequence,
            Self::Lost(lost) => lost.sequence,
        }
    }
}
