//! Frames and their classes.

use crate::{PACKET, clock::clock_packet, pes::PesHeader};
use bytes::{Bytes, BytesMut};
use std::time::Duration;

/// How much of a stream is lost when a frame is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FrameClass {
    /// Program tables, and packets of elementary streams of unknown type: dropped after all video.
    Tables = 0,
    /// Audio: dropped after all video.
    Audio = 1,
    /// A key frame: decoding can start here (IDR; H.265 IRAP).
    Key = 2,
    /// A reference frame: later frames refer to it.
    Reference = 3,
    /// A disposable frame: no other frame refers to it.
    Disposable = 4,
}

impl FrameClass {
    /// All classes, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Tables, Self::Audio, Self::Key, Self::Reference, Self::Disposable];

    /// The class with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Whether it is video. Only video has renditions and refers to other frames.
    pub fn is_video(self) -> bool {
        self >= Self::Key
    }
}

/// One access unit, or the packets between two units: complete MPEG-TS packets of one PID, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The index of its rendition in the ladder; 0 if there is only one, and for tables and shared audio.
    pub track: u8,
    /// What its loss costs.
    pub class: FrameClass,
    /// The decoding time since the stream's first frame, unwrapped.
    pub time: Duration,
    /// Complete packets of 188 bytes; arbitrary bytes from synthetic sources.
    pub bytes: Bytes,
}

impl Frame {
    /// The decoding time stamp (DTS) of the transport stream, ticks of 90 kHz.
    pub fn dts(&self) -> Option<u64> {
        PesHeader::from_packets(&self.bytes)?.dts
    }

    /// The frame's program clock references as packets without payload, to be sent if the frame itself is dropped.
    /// `None` if it has none.
    pub fn clock(&self) -> Option<Bytes> {
        let mut kept = BytesMut::new();
        for packet in self.bytes.as_chunks::<PACKET>().0 {
            if let Some(clock) = clock_packet(packet) {
                kept.extend_from_slice(&clock);
            }
        }
        (!kept.is_empty()).then(|| kept.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_frame_leaves_its_clock() {
        let mut packet = [0xaa; PACKET];
        packet[..12].copy_from_slice(&[0x47, 0x41, 0x00, 0x3a, 7, 0x50, 1, 2, 3, 4, 5, 6]);
        let bytes = [packet, [0x47; PACKET]].concat();
        let frame = Frame {
            track: 0,
            class: FrameClass::Reference,
            time: Duration::ZERO,
            bytes: bytes.into(),
        };
        let clock = frame.clock().expect("it has one");
        assert_eq!(clock.len(), PACKET);
        assert_eq!(clock[..12], [0x47, 0x01, 0x00, 0x2a, 183, 0x10, 1, 2, 3, 4, 5, 6]);
        assert!(clock[12..].iter().all(|byte| *byte == 0xff));
        assert!(Frame { bytes: frame.bytes.slice(PACKET..), ..frame }.clock().is_none());
    }
}
