//! Quantities with units, and the identities all rooms share.
//!
//! Monotonic and wall time never mix: [`Time`] orders events within one
//! process, [`WallTime`] dates what leaves it, and an age travels as a
//! [`std::time::Duration`]. Every quantity is read and printed with its unit
//! (`"40 Mbit/s"`, `"64 kB"`, `"5 ms"`); a bare number is refused.

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
