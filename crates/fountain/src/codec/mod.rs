//! RaptorQ over the blocks of an object (RFC 6330, by the crate `raptorq`).
//!
//! Encoding is deterministic: every holder of a block makes the same repair symbols. Decoding is out of core: an
//! [`Assembly`] spools arriving symbols through a [`SymbolStore`] and contains no symbol. A block is read, solved and
//! written back once it has enough symbols.
//!
//! Wide symbols are coded as parallel stripes, which needs less memory.

mod assembly;
mod encoder;
mod plans;
mod solve;
mod store;
mod stripes;

pub use assembly::{AcceptError, AcceptOutcome, Assembly, AssemblyProgress};
pub use encoder::{BlockEncoder, EncodeError};
pub use plans::{EncodingPlan, PlanCache};
pub use solve::{BlockSolver, SolveError, SolveOutcome};
pub use store::{MemoryStore, SymbolStore};

/// Solving one block takes at most this many times the block's bytes, plus [`DECODE_MEMORY_EXTRA`]: the received
/// symbols, the system's right side, and the result. The memory does not depend on the object. With one solve at a
/// time, a receiver with blocks of 8 MiB needs about 50 MiB.
pub const DECODE_MEMORY_FACTOR: u64 = 4;

/// Memory of solving besides the symbols, in bytes: the system's matrix.
pub const DECODE_MEMORY_EXTRA: u64 = 16 << 20;
