//! The serving end of files between nodes: channels `thalweg/object/1` (`wire::object`).
//!
//! What a node offers, and to whom, is in its settings (`[files]`); nothing is offered without
//! them. The other end is [`crate::gather`].

pub mod spool;
pub mod ticket;
