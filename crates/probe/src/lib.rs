//! Measurement with probe trains between members.

pub mod client;
