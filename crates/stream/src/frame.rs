//! Frames and their classes.

use bytes::Bytes;
use std::time::Duration;

/// How much of a stream is lost when a frame is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FrameClass {
    /// Program tables, and packets of elementary streams of unknown type: dropped after all video.
    Tables = 0,
    /// Audio: dropped after all video.
    Audio = 1,
    /// A key frame: decoding can begin here (IDR; H.265 IRAP).
    Key = 2,
    /// A reference frame: later frames refer to it.
    Reference = 3,
    /// A disposable frame: no other frame refers to it.
    Disposable = 4,
}

/// One access unit, or the packets between two: whole MPEG-TS packets of one PID, in order.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The index of its rendition in the ladder; 0 if there is only one, and for tables and shared audio.
    pub track: u8,
    /// How much its loss costs.
    pub class: FrameClass,
    /// The decoding time since the stream's first frame, unwrapped.
    pub time: Duration,
    /// Whole packets of 188 bytes; any bytes from synthetic sources.
    pub bytes: Bytes,
}
