//! Table 2's streams, and what of them can be decoded.

use std::time::Duration;
use thalweg_stream::{Chains, Frame, FrameClass, class_of};
use thalweg_wire::stream::leg::Lost;

/// Between two frames: 30 a second.
pub const PERIOD: Duration = Duration::from_nanos(33_333_333);

/// Frames of a group: an I frame, four P and ten B frames, twice a second.
pub const GROUP: u64 = 15;

/// The streams' names.
pub const STREAMS: [&str; 3] = ["one", "two", "three"];

/// The class and the bytes of a frame, by its place in decoding order: I P BB P BB P BB P BB BB.
pub fn shape(place: u64) -> (FrameClass, usize) {
    match place % GROUP {
        0 => (FrameClass::Key, 13_500),
        1 | 4 | 7 | 10 => (FrameClass::Reference, 7625),
        _ => (FrameClass::Disposable, 2850),
    }
}

/// The frame of this place.
pub fn frame(place: u64) -> Frame {
    let (class, bytes) = shape(place);
    // No two packets alike: nothing on the way could make them smaller.
    let content = (0..bytes as u64).map(|n| (n.wrapping_mul(place | 1) >> 3) as u8);
    Frame { track: 0, class, time: PERIOD * place as u32, bytes: content.collect() }
}

/// Counts a stream's frames that can be decoded: those that came in time, as did all that they refer to.
#[derive(Debug, Default)]
pub struct Decoder {
    chains: Chains,
    next: Option<u64>,
    /// Frames that came too late.
    pub late: u64,
    /// Frames that came in time and refer to what did not.
    pub broken: u64,
}

impl Decoder {
    /// A frame came; whether it can be decoded.
    pub fn came(&mut self, sequence: u64, frame: &Frame, in_time: bool) -> bool {
        self.gap(sequence);
        self.next = Some(sequence + 1);
        if !in_time {
            self.late += 1;
            self.chains.lost(frame.track, frame.class);
            return false;
        }
        let is_whole = self.chains.take(frame.track, frame.class);
        self.broken += u64::from(!is_whole);
        is_whole
    }

    /// A frame does not come.
    pub fn lost(&mut self, lost: &Lost) {
        self.gap(lost.sequence);
        self.next = Some(lost.sequence + 1);
        if let Some(class) = class_of(lost.class) {
            self.chains.lost(lost.track, class);
        }
    }

    fn gap(&mut self, sequence: u64) {
        if self.next.is_some_and(|next| sequence > next) {
            self.chains.lost_unknown();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frames_are_table_2s() {
        let of = |class| (0..2 * GROUP).filter(|n| shape(*n).0 == class).count();
        assert_eq!(
            [FrameClass::Key, FrameClass::Reference, FrameClass::Disposable].map(of),
            [2, 8, 20]
        );
        let bits: usize = (0..2 * GROUP).map(|n| shape(n).1 * 8).sum();
        assert_eq!(bits, 1_160_000);
    }

    #[test]
    fn a_late_reference_breaks_its_group() {
        let mut decoder = Decoder::default();
        let decoded = (0..20).filter(|n| decoder.came(*n, &frame(*n), *n != 4)).count();
        assert_eq!((decoded, decoder.late, decoder.broken), (4 + 5, 1, 10));
    }
}
