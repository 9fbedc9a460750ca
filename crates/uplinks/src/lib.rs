//! A host's interfaces used as one (DBAS): which of them a connection uses, and bonds over several.
//!
//! In go the kernel's notices, connections to make and settings; out come an interface for each
//! connection, and bonded streams.
//!
//! ```text
//! a connection to be made ─► interfaces::Uplinks ─► the interface that it leaves by
//! bytes, rates, failures  ─► interfaces::Table   ─► estimates, policies, caps, decisions
//! a stream to a member    ─► bond::Bond ══ one TCP connection an interface ══ bond::Bonds
//! ```
//!
//! The algorithms are in `thalweg_bond`, which is pure.

pub mod bond;
pub mod interfaces;
