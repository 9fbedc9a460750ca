//! The receiving side: stores casts of other members, and serves them to further receivers.

mod cast_directory;
mod conductor;
mod control;
mod disk_space;
mod finish;
mod inboxes;
mod incoming_legs;
mod job;
mod leg_limiter;
mod parent_selector;
mod reception;
mod relay;
mod report;
mod run;
mod serve;

pub use inboxes::InboxError;
pub use serve::CastService;
