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

mod frame;

pub use frame::{Frame, FrameClass, PACKET};
