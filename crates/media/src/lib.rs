//! MPEG transport streams as frames and back, and HLS with fMP4 (pure).
//!
//! In go bytes of a transport stream, in any pieces; out come frames that know what their loss costs. In go the frames that
//! are left; out comes a stream that a decoder plays without errors, or the segments of HLS.
//!
//! ```text
//! bytes ─► packets ─┬► PAT, PMT: programs, codecs, tracks
//!                   └► access units by PID ─► class by NAL units, one time line ─► Frame
//! Frame ─► TsJoiner: chains of references, tables, counters, one video of a ladder ─► bytes
//! Frame ─► hls: samples ─► init segment, media segments, playlist
//! ```
//!
//! Programs and PIDs are *tracks*: the renditions of a ladder. What an input can order is bounded: bytes of a frame, bytes
//! that wait, PIDs, programs, sections (decision 0096).

mod chain;
mod frame;
pub mod hls;
mod input_warning;
mod joiner;
mod nal;
mod packet;
mod pes;
mod rates;
mod rendition;
mod splitter;
mod tables;
mod time_line;

pub use frame::{Frame, FrameClass, PACKET};
pub use input_warning::InputWarning;
pub use joiner::{JoinerCounts, Output, TsJoiner};
pub use rates::{ClassRate, TrackRates};
pub use splitter::{Limits, MAX_TRACKS, SplitterCounts, TrackInfo, TsSplitter};
pub use tables::Codec;
