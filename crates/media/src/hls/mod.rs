//! Packages frames as HLS (RFC 8216) with fragmented MP4 (ISO/IEC 14496-12, 23000-19).
//!
//! ```text
//! Frame ─► Segmenter: one rendition; samples of H.264, H.265, AAC ─► SegmenterOutput: init segment │ media segment
//! Segment ─► Playlist: the newest segments ─► text
//! ```
//!
//! A segment starts at a key frame. When parameters change, another init segment precedes the next segment, and the
//! playlist has a discontinuity there.

mod aac;
mod boxes;
mod parameters;
mod playlist;
mod segmenter;

pub use parameters::BadParameters;
pub use playlist::{ExpiredSegments, Playlist};
pub use segmenter::{HlsWarning, Init, Segment, Segmenter, SegmenterOutput, Settings};
