//! Objects as coded symbols, and who sends which of them when (pure).
//!
//! A *cast* moves one *object*, a string of bytes. It is cut into *source symbols*
//! of one size, each a whole subtree of BLAKE3, and these into *blocks*, which
//! RaptorQ (RFC 6330) codes: [`Geometry`] says what lies where. What a node holds is a
//! [`HaveSet`]; what proves it are the [`digest`]s; [`codec`] makes repair symbols and
//! solves blocks out of core. A relay without a store forwards through a [`Ring`]
//! (ROMA §IV-C), which the source fills in the order of its [`Emission`]; a receiver with
//! several parents that keep what they receive asks by its [`Pull`], and the source tells such receivers
//! of different symbols first ([`Reveal`]).

pub mod codec;
pub mod digest;
mod emission;
mod geometry;
mod have;
mod pull;
mod reveal;
mod ring;

pub use emission::{Emission, EmissionSettings, Share};
pub use geometry::{
    CHUNK_BYTES, Geometry, GeometryError, MAX_BLOCK_BYTES, MAX_BLOCK_SYMBOLS, MAX_LENGTH,
    MAX_REPAIR_SYMBOLS, MAX_SYMBOL_BYTES, MAX_SYMBOLS, MIN_SYMBOL_BYTES, SymbolId,
};
pub use have::{HaveSet, RangeError};
pub use pull::{Arrived, ParentId, ParentStatus, Pull, PullProgress, PullSettings};
pub use reveal::{Reveal, SeatId};
pub use ring::{ChildId, ChildStatus, RING_BYTES, Ring, RingError, Shared, pages_known};
