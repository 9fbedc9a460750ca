//! The receiving end: what others cast to this node, and hand on from it.

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
