//! The emulation itself: pure, driven by time, deterministic for a given seed (decision 0077).
//!
//! A [`Link`] is a server with a drop-tail queue and a delay line; a [`Network`] sends packets over paths of links.
//! Neither reads a clock: the caller passes the time, and asks for the time of the next event. Events run at their
//! *logical* time, however late the caller asks, so that lateness never accumulates. Cross traffic and rate traces are
//! part of the link and are processed when the link is used; they cost no event.
//!
//! ```text
//! enter ─▶ up? ─▶ room in the queue? ─▶ departure = max(now, free) + len / rate
//!       ─▶ random loss ─▶ arrival = departure + delay (order kept) ─▶ pop
//! ```

mod class;
mod cross;
mod flight;
mod impair;
mod link;
mod network;
mod record;
mod series;
mod server;
mod truth;

#[cfg(test)]
mod tests;

pub use class::{ClassId, Classifier};
pub use link::{Arrival, Link};
pub use network::{Delivery, Network, NoPath, Tapped};
pub use truth::{Bin, LinkTruth, LossEpisode};
