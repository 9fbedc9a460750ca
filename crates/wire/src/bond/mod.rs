//! The frames on the links of a bond: chunks of streams, and control messages ([`BondMessage`]).
//!
//! A *bond* joins two members by several connections, its *links*. Streams are multiplexed over all links: a chunk of a
//! stream may use any link, and its head says where it belongs (the header of DBAS §II-E, whose chunkId is an offset in
//! bytes here). Messages about a stream may use any link too, so they may overtake chunks and each other; each message
//! is valid whenever it arrives.

/// The maximum number of simultaneous links of a bond, at both ends.
pub const MAX_LINKS: usize = 16;

mod frame;
mod message;

pub use frame::{ChunkHead, FRAME_HEAD, Frame, FrameError, MAX_CHUNK};
pub use message::{
    BondId, BondMessage, Greeting, Hello, MAX_GREETING, MAX_MESSAGE, MAX_RANGES, Refusal, Target,
};
