//! Packages frames as HLS (RFC 8216) with fragmented MP4 (ISO/IEC 14496-12, 23000-19).
//!
//! ```text
//! Frame ─► Segmenter: one rendition; samples of H.264, H.265, AAC ─► SegmenterOutput: init segment │ media segment
//! Segment ─► Playlist: the newest of them ─► text
//! ```
//!
//! A segment begins at a key frame. When parameters change, another init segment precedes the next segment, and the
//! playlist has a discontinuity there.

mod boxes;
mod parameters;
mod playlist;
mod segmenter;
mod sound;

pub use parameters::BadParameters;
pub use playlist::{Playlist, ExpiredSegments};
pub use segmenter::{HlsWarning, Init, SegmenterOutput, Segment, Segmenter, Settings};
