//! The protocol of the channel `thalweg/cast/1`: one object from one source to many receivers.
//!
//! The dialling end sends one [`Opening`], and the other end replies with an [`Answer`]. From then on:
//!
//! ```text
//! control   source → receiver   SourceMessage   after `Manifest` and `Layout` their bytes follow
//!           receiver → source   Report
//! data leg  child → parent      ChildMessage    a request
//!           parent → child      Frame           a symbol with its bytes, or a `ParentMessage`
//! ```
//!
//! A receiver's parents are the source, which dials the receiver, and other receivers, which the receiver dials. On an
//! *open* leg GO and GO-ACK follow the answer, and then clear bytes: all data is verified by digests. Messages are
//! `length:u32 ‖ postcard`; on a data leg the parent's messages have the head of a [`Frame`] in place of the length.
//! All numbers are big-endian.

mod control;
mod frame;
mod id;
mod layout;
mod leg;
mod offer;
mod opening;
mod pass;
mod refusal;
mod repair;
#[cfg(test)]
mod tests;

pub use crate::object::{MessageError, decode, encode, length};
pub use control::{
    Account, Candidate, Fault, InboxRules, LinkRule, MAX_CANDIDATES, MAX_REPORT, MAX_RING,
    MAX_SOURCE_MESSAGE, MAX_WAY, ParentReport, PlanExpectation, ReceiverOutcome, Report, RingTerms,
    SourceMessage,
};
pub use frame::{FRAME_HEAD, Frame, FrameError, MAX_PARENT_MESSAGE, SymbolHead};
pub use id::{CastId, CastIdError};
pub use layout::{
    Layout, LayoutEntry, LayoutError, LayoutKind, LayoutMetadata, MAX_ENTRIES, MAX_LAYOUT,
};
pub use leg::{
    ChildMessage, MAX_CHILD_MESSAGE, MAX_RANGES, ParentMessage, Runs, ServiceMode, are_sound,
    are_within,
};
pub use offer::{MAX_BLOCK_SYMBOLS, MAX_REPAIR, MAX_SYMBOL, MIN_SYMBOL, Offer, Shape};
pub use opening::{Answer, MAX_ANSWER, MAX_OPENING, Opening};
pub use pass::Pass;
pub use refusal::Refusal;
pub use repair::RepairSheet;
