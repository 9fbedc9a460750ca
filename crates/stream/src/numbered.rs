//! Frames with their numbers, and what stands in the place of lost ones.

use crate::{Frame, FrameClass};
use std::{sync::Arc, time::Duration};
use thalweg_units::Time;
use thalweg_wire::stream::leg::{Lost, Why};

/// The class of this number; `None`: there is none.
pub fn class_of(number: u8) -> Option<FrameClass> {
    use FrameClass as C;
    [C::Tables, C::Audio, C::Key, C::Reference, C::Disposable].get(usize::from(number)).copied()
}

/// Whether frames of the class are pictures: these alone have renditions, and refer to each other.
pub fn is_video(class: FrameClass) -> bool {
    class >= FrameClass::Key
}

/// A frame in its stream.
#[derive(Clone, Debug)]
pub struct Numbered {
    /// Its number in the stream's run.
    pub sequence: u64,
    /// When it came to the publisher's node, by this host's clock.
    pub born: Time,
    /// It.
    pub frame: Frame,
}

impl Numbered {
    /// How old it is.
    pub fn age(&self, now: Time) -> Duration {
        now.since(self.born)
    }

    /// What stands in its place when it is left out.
    pub fn lost(&self, why: Why) -> Lost {
        let Frame { track, class, .. } = self.frame;
        Lost { sequence: self.sequence, track, class: class as u8, why }
    }
}

/// A place in a stream.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A frame.
    Frame(Arc<Numbered>),
    /// One that did not come here.
    Lost(Lost),
}

impl Entry {
    /// Its number.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::Frame(frame) => frame.sequence,
            Self::Lost(lost) => lost.sequence,
        }
    }
}
