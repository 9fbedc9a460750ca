//! The receiving side: stores casts of other members, and serves them to further receivers.

mod conduct;
mod control;
mod finish;
mod home;
mod incoming;
mod job;
mod policy;
mod reception;
mod relay;
mod report;
mod room;
mod run;
mod score;
mod serve;
mod served;

pub use policy::InboxError;
pub use serve::Casts;
