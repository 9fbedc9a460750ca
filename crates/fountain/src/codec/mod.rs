//! RaptorQ over the blocks of an object (RFC 6330, by the crate `raptorq`).
//!
//! Encoding is deterministic: whoever holds a block makes the same repair symbols.
//! Decoding is out of core: an [`Assembly`] spools what comes through a [`SymbolStore`]
//! and holds no symbol; a block is read, solved and written back once it has enough.
//!
//! Wide symbols are coded as stripes side by side, which needs less memory.

mod assembly;
mod encoder;
mod plans;
mod solve;
mod store;
mod stripes;

pub use assembly::{AcceptError, Arrival, Assembly, Progress};
pub use encoder::{BlockEncoder, EncodeError};
pub use plans::{Plan, Plans};
pub use solve::{Outcome, Solve, SolveError};
pub use store::{MemoryStore, SymbolStore};

/// Memory of solving one block is at most this many times the block's bytes, plus
/// [`DECODE_MEMORY_EXTRA`]: what was received, the system's right side, and the result.
/// It does not depend on the object; one solve at a time, so a receiver with blocks of
/// 8 MiB needs some 50 MiB.
pub const DECODE_MEMORY_FACTOR: u64 = 4;

/// Memory of solving beside the symbols, in bytes: the system's matrix.
pub const DECODE_MEMORY_EXTRA: u64 = 16 << 20;
