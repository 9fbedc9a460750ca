//! Quantities with units, and the identities of nodes and paths.
//!
//! In go text and numbers; out come values that carry their unit, and the same text again.
//!
//! ```text
//! "40 Mbit/s", "64 kB", "5 ms" ─► Rate, ByteSize, Duration ─► "40 Mbit/s", "64 kB", "5 ms"
//! a process's own clock ─► Time        the date ─► WallTime
//! a public key          ─► NodeId      a mistyped name ─► likeness: the nearest known one
//! ```
//!
//! Monotonic and wall time never mix: [`Time`] orders events within one process, [`WallTime`]
//! dates what leaves it, and an age travels as a [`std::time::Duration`]. Every quantity is read
//! and printed with its unit; a bare number is refused.

mod id;
mod parse;
mod quantity;
mod time;

pub mod likeness;
pub mod serde_duration;

pub use id::{NodeId, NodeIdError, PathId};
pub use parse::{ParseError, format_duration, parse_duration, parse_probability};
pub use quantity::{ByteSize, Rate};
pub use time::{Time, WallTime};
