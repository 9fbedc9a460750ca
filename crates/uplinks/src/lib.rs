//! A host's interfaces used as one (DBAS): which of them a connection uses, and bonds over several.
//!
//! The inputs are the kernel's notices of changes, the connections to be made, and settings. The outputs are an
//! interface for each connection, and bonded streams.
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
