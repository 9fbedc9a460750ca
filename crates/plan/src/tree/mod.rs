//! One-to-many delivery: who gets the object from whom, and how fast.
//!
//! Source: Kwon and Byers, *Reliable Overlay Multicast with Loosely Coupled TCP Connections*
//! (ROMA), §V (model) and §VI-C (widest-path tree).

mod bounded;
pub mod delivery;
pub mod depth;
pub mod model;
mod overlay;
mod rates;
mod several;
mod shape;
mod widest;

pub use bounded::{EFFORT, Planned};
pub use overlay::{Access, Host, Keeps, Overlay, Role};
pub use several::{MOST_LEGS, Several, SeveralError, Share};
pub use shape::{Layout, Tree};
pub use widest::Widest;
