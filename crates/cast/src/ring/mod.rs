//! Streams through rings: nodes forward symbols as they arrive, without storing them for others (ROMA §IV;
//! `fountain::Ring`).
//!
//! ```text
//! source    Feed ──► SharedRing ──► serve, one a child: what its connection takes, pages before symbols
//! receiver  stream ─► proven ─┬► SharedRing ──► serve …      Feed: of blocks that are held, what children lack
//!                             └► Intake: disk, repair symbols in a Spool, solving beside it
//! relay     stream ─► proven ──► SharedRing ──► serve …      says above what its children say
//! ```
//!
//! A child tells its parent which blocks it is done with. When all symbols of a block have been sent, the parent asks,
//! behind the last symbol in the same connection, which symbols the child still lacks, and sends only those.

mod feed;
mod intake;
mod node;
mod proof_cache;
mod repairs;
mod replay_detector;
pub mod serve;
mod shared;
mod spool;
mod stream;
mod upstream_queue;

pub use intake::{DiskMessage, Intake, ReceivedSymbol};
pub use node::{FeedRole, NodeRing};
pub use proof_cache::ProofCache;
pub use repairs::RepairEncoder;
pub use shared::SharedRing;
pub use stream::{Sink, stream};
pub use upstream_queue::UpstreamQueue;
