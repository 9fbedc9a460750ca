//! Data legs and control channels: from a channel to messages and symbols.

pub mod child;
mod desk;
mod io;
mod news;
pub mod parent;
mod seat;

pub use desk::Desk;
pub use io::{Hear, Leg, Say, accept, invalid, open, opening, refuse};
use news::News;
pub use seat::{Audience, Seat};
