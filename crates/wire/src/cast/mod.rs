//! The protocol of a channel `thalweg/cast/1`: one object from one source to many receivers.
//!
//! Whoever dials sends one [`Opening`]; the other end says [`Answer`]. From then on:
//!
//! ```text
//! control   source → receiver   Word      bytes of the manifest and the layout behind theirs
//!           receiver → source   Report
//! data leg  child → parent      Wish      what is asked for
//!           parent → child      Frame     a symbol with its bytes, or `Said`
//! ```
//!
//! A receiver's parents are the source, which dials, and other receivers, which are dialled. On an
//! *open* leg GO and GO-ACK follow the answer, and then clear bytes: whatever is sent is proven
//! by digests. Messages are `length:u32 ‖ postcard`; frames have a byte before that says which of
//! both they are. All numbers are big-endian.

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
    Account, Candidate, Ended, Expected, Fault, FromParent, InboxRules, LinkRule, MAX_CANDIDATES,
    MAX_REPORT, MAX_RING, MAX_WAY, MAX_WORD, Report, RingTerms, Word,
};
pub use frame::{FRAME_HEAD, Frame, FrameError, MAX_SAID, SymbolHead};
pub use id::{CastId, CastIdError};
pub use layout::{
    Layout, LayoutEntry, LayoutError, LayoutKind, LayoutMore, MAX_ENTRIES, MAX_LAYOUT,
};
pub use leg::{MAX_RANGES, MAX_WISH, Runs, Said, Want, Wish, are_sound, are_within};
pub use offer::{MAX_BLOCK_SYMBOLS, MAX_REPAIR, MAX_SYMBOL, MIN_SYMBOL, Offer, Shape};
pub use opening::{Answer, MAX_ANSWER, MAX_OPENING, Opening};
pub use pass::Pass;
pub use refusal::Refusal;
pub use repair::RepairSheet;
