//! One-to-many delivery over channels `thalweg/cast/1` (`wire::cast`).
//!
//! ```text
//! thalweg cast ── source ── control channel to each receiver's daemon: offer, parents; reports
//!                    │  └── data legs to receivers that call for one
//!                    │
//! thalweg node ── Casts ─┬ receive  one cast at a receiver: its parents, its disk, its end
//!                        ├ leg      parent: gives what is asked for; child: asks, proves
//!                        └ ring     parent: streams what comes as it comes; child: proves, decodes
//! ```
//!
//! Source and receivers are *stores*: they hold proven symbols on the disk and give each to whoever
//! asks. A receiver pulls from several parents at once, each symbol from one; so nothing comes
//! twice, a slow child holds nobody up, and what a dead parent owed is asked of another.

mod average;
mod disk;
mod leg;
mod receive;
mod ring;
mod settings;
mod store;

pub mod source;

pub use average::average_bps;
pub use receive::{Casts, InboxError};
pub use settings::{Inbox, Settings};
