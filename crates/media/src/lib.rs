//! Splits MPEG transport streams into frames, joins frames to streams, and packages them as HLS with fMP4. Pure.
//!
//! A splitter reads a transport stream in any pieces and returns frames with their classes. A joiner turns the frames
//! that remain after drops into a stream that decoders play without errors, and a segmenter turns them into HLS.
//!
//! ```text
//! bytes ─► packets ─┬► PAT, PMT: programs, codecs, tracks
//!                   └► access units by PID ─► class by NAL units, one timeline ─► Frame
//! frames of a source and its transcoders ─► Ladder ─► Frame
//! Frame ─► TsJoiner: chains of references, tables, counters, one video of a ladder ─► bytes
//! Frame ─► hls: samples ─► init segment, media segments, playlist
//! ```
//!
//! Each video of a program is a *track*, a rendition of a ladder. The sizes of frames and of incomplete units and the
//! numbers of PIDs, programs and sections are bounded (decision 0096).

mod chain;
mod clock;
mod dts_timeline;
mod frame;
mod frame_timeline;
pub mod hls;
mod input_warning;
mod joiner;
mod ladder;
mod nal;
mod packet;
mod parameter_sets;
mod pes;
mod rendition;
mod splitter;
mod tables;

pub use frame::{Frame, FrameClass};
pub use frame_timeline::FrameTimeline;
pub use input_warning::InputWarning;
pub use joiner::{JoinerCounts, Output, TsJoiner};
pub use ladder::{Ladder, TimestampMismatch};
pub use packet::PACKET;
pub use splitter::{Limits, MAX_TRACKS, SplitterCounts, TrackInfo, TsSplitter};
pub use tables::Codec;
