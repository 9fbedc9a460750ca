//! What a parent sends: symbols and messages, one behind the other.

use super::{MAX_SYMBOL, Said};
use crate::object;
use thiserror::Error;

/// Bytes before a frame's body.
pub const FRAME_HEAD: usize = 13;

/// The longest message of a parent: a page of 16384 digests, and room.
pub const MAX_SAID: usize = 1 << 20;

const MESSAGE: u8 = 0;
const SYMBOL: u8 = 1;

/// Where a symbol belongs, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SymbolHead {
    /// The block.
    pub block: u32,
    /// The encoding symbol's number in it (RFC 6330 §4.4.2): below K a source symbol.
    pub esi: u32,
    /// Its bytes, from 1 to [`MAX_SYMBOL`].
    pub length: u32,
}

/// The head of what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// So many bytes of a symbol follow.
    Symbol(SymbolHead),
    /// A [`Said`] of so many bytes follows.
    Message(usize),
}

/// The bytes are no frame's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Neither a symbol nor a message.
    #[error("neither a symbol nor a message")]
    Kind,
    /// Empty, or longer than there are.
    #[error("a symbol or message of {0} bytes")]
    Length(u32),
}

impl Frame {
    /// The head: `kind:u8 ‖ block:u32 ‖ ESI:u32 ‖ length:u32`; a message has zeros as block and ESI.
    pub fn encode(self) -> [u8; FRAME_HEAD] {
        let (kind, block, esi, length) = match self {
            Self::Symbol(SymbolHead { block, esi, length }) => (SYMBOL, block, esi, length),
            // No message is as long as 4 GiB.
            Self::Message(length) => (MESSAGE, 0, 0, length as u32),
        };
        let mut head = [kind; FRAME_HEAD];
        head[1..5].copy_from_slice(&block.to_be_bytes());
        head[5..9].copy_from_slice(&esi.to_be_bytes());
        head[9..].copy_from_slice(&length.to_be_bytes());
        head
    }

    /// Reads it.
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
            MESSAGE if length as usize <= MAX_SAID && (block, esi) == (0, 0) => {
                Ok(Self::Message(length as usize))
            }
            SYMBOL | MESSAGE => Err(FrameError::Length(length)),
            _ => Err(FrameError::Kind),
        }
    }

    /// A whole message.
    pub fn message(said: &Said) -> Vec<u8> {
        let body = object::encode(said);
        let mut out = Self::Message(body.len() - 4).encode().to_vec();
        out.extend(&body[4..]);
        out
    }
}
