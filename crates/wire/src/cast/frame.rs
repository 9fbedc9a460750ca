//! The frames that a parent sends on a data leg: symbols and messages.

use super::{MAX_SYMBOL, ParentMessage};
use crate::object;
use thiserror::Error;

/// The length of a frame's head, bytes.
pub const FRAME_HEAD: usize = 13;

/// The longest message of a parent, bytes: a page of 16384 digests, and reserve.
pub const MAX_PARENT_MESSAGE: usize = 1 << 20;

const MESSAGE: u8 = 0;
const SYMBOL: u8 = 1;

/// The position of a symbol, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolHead {
    /// The number of the block.
    pub block: u32,
    /// The encoding symbol id in the block (RFC 6330 §4.4.2); those below K are source symbols.
    pub esi: u32,
    /// The length, 1 to [`MAX_SYMBOL`] bytes.
    pub length: u32,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A symbol follows.
    Symbol(SymbolHead),
    /// A [`ParentMessage`] of this length in bytes follows.
    Message(usize),
}

/// The bytes are not a valid head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The kind is unknown.
    #[error("the frame is neither a symbol nor a message")]
    Kind,
    /// A symbol is empty or too long, or a message is too long or has non-zero unused bytes.
    #[error("a symbol or message has an invalid length of {0} bytes")]
    Length(u32),
}

impl Frame {
    /// Encodes `kind:u8 ‖ block:u32 ‖ ESI:u32 ‖ length:u32`. A message has zeros for block and ESI.
    pub fn encode(self) -> [u8; FRAME_HEAD] {
        let (kind, block, esi, length) = match self {
            Self::Symbol(SymbolHead { block, esi, length }) => (SYMBOL, block, esi, length),
            // A message has at most MAX_PARENT_MESSAGE bytes.
            Self::Message(length) => (MESSAGE, 0, 0, length as u32),
        };
        let mut head = [kind; FRAME_HEAD];
        head[1..5].copy_from_slice(&block.to_be_bytes());
        head[5..9].copy_from_slice(&esi.to_be_bytes());
        head[9..].copy_from_slice(&length.to_be_bytes());
        head
    }

    /// Decodes a head.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn decode(head: [u8; FRAME_HEAD]) -> Result<Self, FrameError> {
        let [kind, b0, b1, b2, b3, e0, e1, e2, e3, l0, l1, l2, l3] = head;
        let (block, esi) =
            (u32::from_be_bytes([b0, b1, b2, b3]), u32::from_be_bytes([e0, e1, e2, e3]));
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        match kind {
            SYMBOL if (1..=MAX_SYMBOL).contains(&length) => {
                Ok(Self::Symbol(SymbolHead { block, esi, length }))
            }
            MESSAGE if length as usize <= MAX_PARENT_MESSAGE && (block, esi) == (0, 0) => {
                Ok(Self::Message(length as usize))
            }
            SYMBOL | MESSAGE => Err(FrameError::Length(length)),
            _ => Err(FrameError::Kind),
        }
    }

    /// Encodes a message with its head.
    pub fn encode_message(message: &ParentMessage) -> Vec<u8> {
        let body = object::encode(message);
        let mut out = Self::Message(body.len() - 4).encode().to_vec();
        out.extend(&body[4..]);
        out
    }
}
