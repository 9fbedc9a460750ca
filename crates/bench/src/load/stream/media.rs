//! Table 2's streams, and a decoder that counts decodable frames.

use std::time::Duration;
use thalweg_media::{Frame, FrameClass};
use thalweg_stream::Chains;
use thalweg_wire::stream::leg::LostFrame;

/// The time between two frames: 30 a second.
pub const PERIOD: Duration = Duration::from_nanos(33_333_333);

/// The frames of a group: one I, four P and ten B frames, twice a second.
pub const GROUP: u64 = 15;

/// The streams' names.
pub const STREAMS: [&str; 3] = ["one", "two", "three"];

/// The class and length of a frame by its place in decoding order: I P BB P BB P BB P BB BB.
pub fn shape(place: u64) -> (FrameClass, usize) {
    match place % GROUP {
        0 => (FrameClass::Key, 13_500),
        1 | 4 | 7 | 10 => (FrameClass::Reference, 7625),
        _ => (FrameClass::Disposable, 2850),
    }
}

/// The frame at this place.
pub fn frame(place: u64) -> Frame {
    let (class, bytes) = shape(place);
    // Distinct contents, so that nothing can compress them.
    let content = (0..bytes as u64).map(|n| (n.wrapping_mul(place | 1) >> 3) as u8);
    Frame { track: 0, class, time: PERIOD * place as u32, bytes: content.collect() }
}

/// Counts a stream's decodable frames: those that arrive in time with all frames that they depend on.
#[derive(Debug, Default)]
pub struct Decoder {
    chains: Chains,
    next: Option<u64>,
    /// Frames that arrived too late.
    pub late: u64,
    /// Frames that arrived in time but depend on missing ones.
    pub broken: u64,
}

impl Decoder {
    /// Receives a frame and returns whether it can be decoded.
    pub fn receive(&mut self, sequence: u64, frame: &Frame, in_time: bool) -> bool {
        self.check_gap(sequence);
        self.next = Some(sequence + 1);
        if !in_time {
            self.late += 1;
            self.chains.record_loss(frame.track, frame.class);
            return false;
        }
        let is_whole = self.chains.accept(frame.track, frame.class);
        self.broken += u64::from(!is_whole);
        is_whole
    }

    /// Receives a loss notice.
    pub fn receive_lost(&mut self, lost: &LostFrame) {
        self.check_gap(lost.sequence);
        self.next = Some(lost.sequence + 1);
        if let Some(class) = FrameClass::from_number(lost.class) {
            self.chains.record_loss(lost.track, class);
        }
    }

    fn check_gap(&mut self, sequence: u64) {
        if self.next.is_some_and(|next| sequence > next) {
            self.chains.break_all();
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
        let decoded = (0..20).filter(|n| decoder.receive(*n, &frame(*n), *n != 4)).count();
        assert_eq!((decoded, decoder.late, decoder.broken), (4 + 5, 1, 10));
    }
}
