//! Streams through rings: symbols are forwarded as they arrive, and no node stores them for others
//! (ROMA §IV; `fountain::Ring`).
//!
//! ```text
//! source    Feed ──► SharedRing ──► serve, one a child: what its connection takes, pages before symbols
//! receiver  stream ─► proven ─┬► SharedRing ──► serve …      Feed: of blocks that are held, what children lack
//!                             └► Intake: disk, repair symbols in a Spool, solving beside it
//! relay     stream ─► proven ──► SharedRing ──► serve …      says above what its children say
//! ```
//!
//! A child says which blocks it is done with. Where all was sent of a block, its parent asks in the
//! same connection, behind the last symbol, what is lacking, and sends that alone.

mod book;
mod feed;
mod intake;
mod node;
mod repairs;
mod seen;
pub mod serve;
mod shared;
mod spool;
mod stream;
mod up;

pub use book::PageBook;
pub use intake::{Intake, Piece, ToDisk};
pub use node::{NodeRing, Start};
pub use repairs::Repairs;
pub use shared::SharedRing;
pub use stream::{Sink, stream};
pub use up::Up;
