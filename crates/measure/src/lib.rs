//! Estimates of paths, and the one table that holds them (pure).
//!
//! An [`Estimate`] says what was measured of which [`Subject`], how, by whom,
//! how long ago, and whether it is the value or only a lower [`Bound`]. The
//! [`Table`] keeps the youngest; plans are made from it by
//! `plan::Graph::from_table` and in no other way.
//!
//! All is on dense indices; whoever owns a table maps them to node identities.

mod bound;
pub mod bulk;
mod estimate;
pub mod estimators;
pub mod overlay;
#[cfg(test)]
mod path;
pub mod riders;
mod spare;
mod subject;
mod table;
pub mod train;

pub use bound::{Bound, LimitedTime};
pub use estimate::{Estimate, EstimateError, Method, Metric};
pub use spare::{MAX_SPARE_AGE, Spare, planned};
pub use subject::{Interface, NodeIndex, SharedSetIndex, Subject};
pub use table::{Table, TableError};
