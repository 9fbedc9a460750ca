//! The heads of frames on a link.

use super::{BondMessage, MAX_MESSAGE};
use crate::object;
use thiserror::Error;

/// The length of a frame's head, bytes.
pub const FRAME_HEAD: usize = 17;

/// The longest chunk, bytes. While a link sends a chunk it cannot send anything else.
pub const MAX_CHUNK: u32 = 256 << 10;

const MESSAGE: u8 = 0;
const CHUNK: u8 = 1;

/// The position of a chunk in its stream, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    /// The number of the stream.
    pub stream: u32,
    /// The offset of the chunk in the stream, bytes; its end is below 2⁶⁴.
    pub offset: u64,
    /// The length, 1 to [`MAX_CHUNK`] bytes.
    pub length: u32,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A chunk of a stream follows.
    Chunk(ChunkHead),
    /// A [`BondMessage`] of this length in bytes follows.
    Message(usize),
}

/// The bytes are not a valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The kind is unknown.
    #[error("the frame is neither a chunk nor a message")]
    Kind,
    /// A chunk is empty or too long, or a message is too long or has non-zero unused bytes.
    #[error("a chunk or message has an invalid length of {0} bytes")]
    Length(u32),
    /// The chunk would end beyond 2⁶⁴ bytes.
    #[error("a chunk at offset {0} exceeds the maximum length of a stream")]
    Offset(u64),
}

impl Frame {
    /// Encodes `kind:u8 ‖ stream:u32 ‖ offset:u64 ‖ length:u32`, big-endian. A message has zeros for stream and offset.
    pub fn encode(self) -> [u8; FRAME_HEAD] {
        let (kind, stream, offset, length) = match self {
            Self::Chunk(ChunkHead { stream, offset, length }) => (CHUNK, stream, offset, length),
            // A message has at most MAX_MESSAGE bytes.
            Self::Message(length) => (MESSAGE, 0, 0, length as u32),
        };
        let mut head = [kind; FRAME_HEAD];
        head[1..5].copy_from_slice(&stream.to_be_bytes());
        head[5..13].copy_from_slice(&offset.to_be_bytes());
        head[13..].copy_from_slice(&length.to_be_bytes());
        head
    }

    /// Decodes a head.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn decode(head: [u8; FRAME_HEAD]) -> Result<Self, FrameError> {
        let [kind, s0, s1, s2, s3, o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3] = head;
        let stream = u32::from_be_bytes([s0, s1, s2, s3]);
        let offset = u64::from_be_bytes([o0, o1, o2, o3, o4, o5, o6, o7]);
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        match kind {
            CHUNK if !(1..=MAX_CHUNK).contains(&length) => Err(FrameError::Length(length)),
            CHUNK if offset.checked_add(length.into()).is_none() => Err(FrameError::Offset(offset)),
            CHUNK => Ok(Self::Chunk(ChunkHead { stream, offset, length })),
            MESSAGE if length as usize > MAX_MESSAGE || (stream, offset) != (0, 0) => {
                Err(FrameError::Length(length))
            }
            MESSAGE => Ok(Self::Message(length as usize)),
            _ => Err(FrameError::Kind),
        }
    }

    /// Encodes a message with its head.
    pub fn encode_message(message: &BondMessage) -> Vec<u8> {
        let body = object::encode(message);
        let mut out = Self::Message(body.len() - 4).encode().to_vec();
        out.extend(&body[4..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invalid_heads_are_refused() {
        let chunk = |offset, length| Frame::Chunk(ChunkHead { stream: 1, offset, length }).encode();
        assert_eq!(Frame::decode(chunk(0, 0)), Err(FrameError::Length(0)));
        assert_eq!(Frame::decode(chunk(0, MAX_CHUNK + 1)), Err(FrameError::Length(MAX_CHUNK + 1)));
        assert_eq!(Frame::decode(chunk(u64::MAX, 1)), Err(FrameError::Offset(u64::MAX)));
        assert_eq!(Frame::decode([7; FRAME_HEAD]), Err(FrameError::Kind));
        let long = Frame::Message(MAX_MESSAGE + 1);
        assert_eq!(Frame::decode(long.encode()), Err(FrameError::Length(MAX_MESSAGE as u32 + 1)));
    }

    proptest! {
        #[test]
        fn heads_round_trip(stream: u32, offset in 0u64..1 << 60, length in 1..=MAX_CHUNK) {
            let chunk = Frame::Chunk(ChunkHead { stream, offset, length });
            prop_assert_eq!(Frame::decode(chunk.encode()), Ok(chunk));
        }

        #[test]
        fn a_head_has_one_encoding(head: [u8; FRAME_HEAD]) {
            if let Ok(frame) = Frame::decode(head) {
                prop_assert_eq!(frame.encode(), head);
            }
        }
    }
}
