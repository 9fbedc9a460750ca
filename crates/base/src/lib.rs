//! What every service of a node stands on: jobs, byte budgets, durable writes, the log, limits.
//!
//! Nothing here knows of a mesh, a path or a transfer.
//!
//! ```text
//! a service ─► Shares, accept      may it begin?          ─► a place, or none
//!           ─► Budget, TokenBucket may it send so much?   ─► yes, later, or no
//!           ─► message, timeout    one message, in time   ─► the peer's words
//!           ─► Job, durable        what must survive      ─► files that are synced
//!           ─► Log                 what happened          ─► one line an event
//! ```

pub mod accept;
pub mod budget;
pub mod clock;
pub mod descriptors;
pub mod durable;
pub mod job;
pub mod log;
pub mod message;
pub mod peer_source;
pub mod rate_limit;
pub mod shares;
pub mod throttle;
pub mod timeout;
pub mod token_bucket;
