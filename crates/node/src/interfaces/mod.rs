//! The interfaces of this host, and which of them a whole connection goes by: DBAS's
//! connection-oriented mode (§II-D) for any server. `thalweg_bond` decides; here is what it
//! decides by.
//!
//! A [`Table`] is pure: the usable interfaces, what they bring, what is under way by them, what
//! each application's connections move, and what the user allows. [`Kept`] is what outlives the
//! process. Estimates are of traffic that goes anyway: nothing is sent to make them.

mod estimate;
mod kept;
mod program;
mod settings;
mod table;

pub use estimate::Estimate;
pub use kept::Kept;
pub use program::program_at;
pub use settings::Settings;
pub use table::{Assigned, Decision, Present, Shown, Table};

#[cfg(test)]
mod tests;
