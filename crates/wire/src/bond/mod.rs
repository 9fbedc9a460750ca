//! The frames on the links of a bond: chunks of streams, and control words.
//!
//! A *bond* joins two members by several connections, its *links*. Streams are multiplexed over
//! all of them: a chunk of a stream may come by any link, and says where it belongs (the header of
//! DBAS §II-E, whose chunkId is an offset in bytes here). Words about a stream go by any link too,
//! so they may overtake chunks and each other; each is true whenever it comes.

/// Links of a bond at a time, at both ends.
pub const MAX_LINKS: usize = 16;

mod frame;
mod word;

pub use frame::{ChunkHead, FRAME_HEAD, Frame, FrameError, MAX_CHUNK};
pub use word::{
    BondId, Greeting, Hello, MAX_GREETING, MAX_RANGES, MAX_WORD, Refusal, Target, Word,
};
