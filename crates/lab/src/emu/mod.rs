//! The emulation itself: pure, driven by time, the same for every seed.
//!
//! A [`Link`] is a server with a drop-tail queue and a delay line; a
//! [`Network`] sends packets over paths of links. Neither reads a clock: a
//! caller says what time it is, and asks when something happens next. Events
//! run at their *logical* time, however late the caller asks, so that
//! lateness never adds up. Cross traffic and rate traces live inside the link
//! and are worked off when it is touched; they cost no event.
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
