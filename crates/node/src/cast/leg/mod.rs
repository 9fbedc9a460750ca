//! Data legs and control channels: from a channel to messages and symbols.

pub mod child;
mod desk;
mod io;
pub mod parent;

pub use desk::Desk;
pub use io::{Hear, Leg, Say, accept, invalid, open, opening, refuse};
