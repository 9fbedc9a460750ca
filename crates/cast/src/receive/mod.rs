//! The receiving side: stores casts of other members, and serves them to further receivers.

mod conductor;
mod control;
mod finish;
mod cast_directory;
mod incoming_legs;
mod job;
mod inboxes;
mod reception;
mod relay;
mod report;
mod disk_space;
mod run;
mod parent_selector;
mod serve;
mod leg_limiter;

pub use inboxes::InboxError;
pub use serve::CastService;
