//! What a stream is made of.

use bytes::Bytes;
use std::time::Duration;

/// How much of a stream is lost when a frame is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FrameClass {
    /// Program tables, and packets of streams that nobody here can judge: never dropped before video.
    Tables = 0,
    /// Sound: never dropped before video.
    Audio = 1,
    /// A key frame: decoding can begin here (IDR; H.265 IRAP).
    Key = 2,
    /// A frame that later frames refer to.
    Reference = 3,
    /// A frame that nothing refers to.
    Disposable = 4,
}

/// One access unit, or what lies between two: whole MPEG-TS packets of one PID, in order.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The rendition it belongs to: an index in the order of the ladder; 0 where there is one alone. Tables and shared sound: 0.
    pub track: u8,
    /// What its loss costs.
    pub class: FrameClass,
    /// When it is to be decoded: microseconds since the stream's first frame, unwrapped.
    pub time: Duration,
    /// Whole packets of 188 bytes (or, of synthetic sources, any bytes).
    pub bytes: Bytes,
}
