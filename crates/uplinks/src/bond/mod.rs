//! Bonds: streams over several connections at once (DBAS, packet-oriented mode).
//!
//! A [`Bond`] is the dialling end: it connects to a member by each interface. [`Bonds`] is the daemon's end.
//! [`Bonding`] keeps the bonds of a host and lends their streams to a [`Dialer`](thalweg_net::Dialer), so that all who
//! open channels use them.

mod bonding;
mod dial;
mod engine;
mod flow;
mod gauge;
mod greet;
mod link;
mod link_interfaces;
mod link_keeper;
mod link_maker;
mod memory;
mod metrics;
mod outbox;
mod permit_stream;
mod readiness;
mod registry;
mod serve;
mod state;
mod status;
mod stream;

pub use bonding::Bonding;
pub use dial::Bond;
pub use engine::{Engine, LinkEnd};
pub use flow::StreamError;
pub use link::LinkIo;
pub use link_interfaces::InterfaceLister;
pub use memory::Memory;
pub use metrics::BondMetrics;
pub use readiness::Readiness;
pub use registry::{BondRegistry, BondStatus};
pub use serve::{BondLimits, Bonds};
pub use state::Settings;
pub use status::{LinkLife, LinkStatus};
pub use stream::BondStream;

/// Both ends give up a bond that has had no link for this long.
const GRACE: std::time::Duration = std::time::Duration::from_secs(60);
