//! The common basis of a node's services: limits, budgets, durable records, the log.
//!
//! The input is requests for places and bytes, records and events; the output is permissions, delays, synced files and
//! log lines. Nothing here depends on meshes, paths or transfers.
//!
//! ```text
//! new connections     ─► FairSlots, PeerSlots   ─► a place, or a refusal
//! a peer's request    ─► request_memory, costly ─► its bytes, and a turn for its work
//! bytes to send       ─► Budget, token_bucket   ─► now, later, or refused
//! a peer's connection ─► message, timeout       ─► one message, within its time
//! records             ─► Job, durable           ─► files that are synced
//! events              ─► Log, Throttle          ─► one line an event, a bounded number of them
//! ```

pub mod accept;
pub mod budget;
pub mod clock;
pub mod costly;
pub mod descriptors;
pub mod durable;
pub mod fair_slots;
pub mod job;
pub mod live_settings;
pub mod locked_file;
pub mod log;
pub mod message;
pub mod peer_slots;
pub mod peer_source;
pub mod rate_limit;
pub mod rate_timetable;
pub mod request_memory;
pub mod sample;
pub mod space;
pub mod throttle;
pub mod timeout;
pub mod token_bucket;
pub mod verdict;
pub mod watched;
