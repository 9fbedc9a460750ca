//! Quantities with units, and the identities of nodes and paths.
//!
//! Converts text and numbers to values with a unit, and back to the same text.
//!
//! ```text
//! "40 Mbit/s", "64 kB", "5 ms" ─► Rate, ByteSize, Duration ─► "40 Mbit/s", "64 kB", "5 ms"
//! a process's monotonic clock ─► Time        the date ─► WallTime
//! a public key                ─► NodeId      a mistyped name ─► likeness: the most similar known name
//! ```
//!
//! Monotonic and wall time are different types: [`Time`] orders events within one process, [`WallTime`] dates records
//! for other processes and hosts, and ages are sent as [`std::time::Duration`]. Every quantity is read and printed with
//! its unit; a number without a unit is refused.

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
