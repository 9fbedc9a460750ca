//! This host's knowledge of paths, and the choice among them.
//!
//! The inputs are the results of transfers and the oracle's lists; the outputs are candidates, choices, and the graph
//! for plans.
//!
//! ```text
//! transfers ─► history   this host's results by path     ─┐
//! oracle    ─► detours   ranked relays, Algorithm 2      ─┼─► candidates, PathChooser ─► routes
//! oracle    ─► estimates rates and round trips of legs   ─┘   Overlay ─► plans of collections, casts
//! ```

pub mod candidates;
pub mod chooser;
pub mod detours;
pub mod estimates;
pub mod history;
pub mod history_chooser;
pub mod inward_redirect;
pub mod overlay;
pub mod table;
pub mod transfer_counters;
pub mod url;
pub mod verdict;
