//! Bonds: streams over several connections at once (DBAS, packet-oriented mode).
//!
//! A [`Bond`] is the dialling end: it connects to a member by each interface. [`Bonds`] is the daemon's end.
//! [`Bonding`] keeps the bonds of a host and lends their streams to a [`Dialer`](thalweg_net::Dialer), so that all who
//! open channels use them.

mod permit_stream;
mod bonding;
mod link_interfaces;
mod dial;
mod engine;
mod flow;
mod gauge;
mod greet;
mod link_keeper;
mod link;
mod link_maker;
mod memory;
mod metrics;
mod outbox;
mod serve;
mod readiness;
mod state;
mod status;
mod stream;
mod registry;

pub use bonding::Bonding;
pub use link_interfaces::InterfaceLister;
pub use dial::Bond;
pub use engine::{LinkEnd, Engine};
pub use flow::StreamError;
pub use link::LinkIo;
pub use memory::Memory;
pub use metrics::BondMetrics;
pub use serve::{BondLimits, Bonds};
pub use readiness::Readiness;
pub use state::Settings;
pub use status::{LinkLife, LinkStatus};
pub use stream::BondStream;
pub use registry::{BondStatus, BondRegistry};

/// Both ends give up a bond that has had no link for this long.
const GRACE: std::time::Duration = std::time::Duration::from_secs(60);
