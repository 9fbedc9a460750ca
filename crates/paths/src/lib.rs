//! What this host knows of paths, and the choice among them.
//!
//! In go the results of transfers, and the oracle's lists; out come candidates, choices and the
//! graph that plans are made on.
//!
//! ```text
//! transfers ─► history   what this host saw of each path ─┐
//! oracle    ─► detours   ranked relays, Algorithm 2      ─┼─► candidates, PathChooser ─► routes
//! oracle    ─► estimates rates and round trips of legs   ─┘   Overlay ─► plans of collections, casts
//! ```

pub mod by_history;
pub mod candidates;
pub mod chooser;
pub mod detours;
pub mod estimates;
pub mod history;
pub mod inward;
pub mod overlay;
pub mod table;
pub mod url;
