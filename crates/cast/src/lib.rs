//! One-to-many delivery over channels `thalweg/cast/1` (`wire::cast`).
//!
//! The input is an object and the names of receivers. The output is the files at the receivers, and a record of the
//! job.
//!
//! ```text
//! thalweg cast ── source ── control channel to each receiver's daemon: offer, parents; reports
//!                    │  └── data legs to receivers that call for one
//!                    │
//! thalweg node ── CastService ─┬ receive  one cast at a receiver: its parents, its disk, its end
//!                              ├ leg      parent: sends the symbols asked for; child: asks, verifies
//!                              └ ring     parent: streams symbols as they arrive; child: verifies, decodes
//! ```
//!
//! Source and receivers are *stores*: they hold verified symbols on disk and send them to members that request them. A
//! receiver pulls from several parents at once, each symbol from one of them. So no symbol arrives twice, a slow child
//! delays no other, and symbols requested from a parent that fails are requested from another one.

mod average;
mod disk;
mod leg;
mod receive;
mod ring;
mod settings;
mod store;

pub mod source;

pub use average::average_bps;
pub use receive::{CastService, InboxError};
pub use settings::{Inbox, Settings};
