//! Frames as segments of HLS (RFC 8216) in fragmented MP4 (ISO/IEC 14496-12, 23000-19), and the playlist of them.
//!
//! ```text
//! Frame ─► Segmenter: one rendition; samples of H.264, H.265, AAC ─► Piece: init segment │ media segment
//! Segment ─► Playlist: the newest of them ─► text
//! ```
//!
//! Pure: bytes and text, no files. A segment begins at a key frame. When parameters change, another init segment goes before
//! the next segment, and the playlist has a discontinuity there.

mod boxes;
mod parameters;
mod playlist;
mod segmenter;
mod sound;

pub use parameters::BadParameters;
pub use playlist::{Playlist, Removed};
pub use segmenter::{HlsWarning, Init, Piece, Segment, Segmenter, Settings};
