//! One-to-many delivery: who gets the object from whom, and how fast.
//!
//! Source: Kwon and Byers, *Reliable Overlay Multicast with Loosely Coupled TCP Connections*
//! (ROMA), §V (model) and §VI-C (widest-path tree).

pub mod model;
mod overlay;
mod shape;
mod widest;

pub use overlay::{Access, Host, Keeps, Overlay, Role};
pub use shape::Tree;
