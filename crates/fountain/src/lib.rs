//! Objects as coded symbols, and the scheduling of who sends which symbol when (pure).
//!
//! Inputs are an object's bytes, arriving symbols, and the time. Outputs are symbols to send, symbols to request, and
//! the object.
//!
//! ```text
//! an object ─► Geometry: blocks, symbols ─► codec: repair symbols; digest: their proofs
//!
//! source    Emission: which symbol next ─► Ring ─► children, each at its own pace
//! source    AnnouncementScheduler: which symbols for which receiver ─┐
//! receiver  Pull: which symbols to ask of which parent ◄──────────────┘
//!           symbols ─► HaveSet ─► codec: solves each block ─► the object
//! ```
//!
//! A *cast* moves one *object*, a string of bytes. It is divided into *source symbols* of one size, each a complete
//! subtree of BLAKE3, and these into *blocks*, which RaptorQ (RFC 6330) codes: [`Geometry`] defines the place of each.
//! A [`HaveSet`] is the set of symbols that a node holds, the [`digest`]s prove them, and [`codec`] makes repair
//! symbols and solves blocks out of core.
//!
//! A relay without a store forwards through a [`Ring`] (ROMA §IV-C); the source fills its ring in the order of its
//! [`Emission`]. A receiver with several parents that keep their symbols requests them through a [`Pull`]; the source
//! announces different symbols to such receivers first ([`AnnouncementScheduler`]).

mod announcements;
pub mod codec;
pub mod digest;
mod emission;
mod geometry;
mod have;
mod pull;
mod ring;

pub use announcements::{AnnouncementScheduler, ChildConnectionId};
pub use emission::{Emission, EmissionSettings, SenderShare};
pub use geometry::{
    CHUNK_BYTES, Geometry, GeometryError, MAX_BLOCK_BYTES, MAX_BLOCK_SYMBOLS, MAX_LENGTH,
    MAX_REPAIR_SYMBOLS, MAX_SYMBOL_BYTES, MAX_SYMBOLS, MIN_SYMBOL_BYTES, SymbolId,
};
pub use have::{HaveSet, RangeError};
pub use pull::{ParentId, ParentStatus, Pull, PullProgress, PullSettings, ReceiptOutcome};
pub use ring::{ChildId, ChildStatus, RING_BYTES, Ring, RingError, SharedBytes, pages_known};
