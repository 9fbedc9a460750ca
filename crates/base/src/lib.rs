//! What the services of a node have in common: limits, budgets, durable records, the log.
//!
//! In go requests for places and bytes, records and events; out come permissions, delays, synced
//! files and log lines. Nothing here knows of a mesh, a path or a transfer.
//!
//! ```text
//! new work            ─► Shares, accept       ─► a place, or a refusal
//! bytes to send       ─► Budget, token_bucket ─► now, later, or refused
//! a peer's connection ─► message, timeout     ─► one message, within its time
//! records             ─► Job, durable         ─► files that are synced
//! events              ─► Log, Throttle        ─► one line an event, a bounded number of them
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
