//! Bonds: streams over several connections at once (DBAS, packet-oriented mode).
//!
//! A [`Bond`] is the dialling end: it connects to a member by each interface. [`Bonds`] is the daemon's end.
//! [`Bonding`] keeps the bonds of a host and lends their streams to a [`Dialer`](thalweg_net::Dialer), so that all who
//! open channels use them.

mod answered;
mod bonding;
mod by;
mod dial;
mod engine;
mod flow;
mod gauge;
mod greet;
mod keeping;
mod link;
mod making;
mod memory;
mod metrics;
mod outbox;
mod serve;
mod standing;
mod state;
mod status;
mod stream;
mod watching;

pub use bonding::Bonding;
pub use by::Interfaces;
pub use dial::Bond;
pub use engine::{Ended, Engine};
pub use flow::Broken;
pub use link::LinkIo;
pub use memory::Memory;
pub use metrics::BondMetrics;
pub use serve::{BondLimits, Bonds};
pub use standing::Standing;
pub use state::Settings;
pub use status::{LinkLife, LinkStatus};
pub use stream::BondStream;
pub use watching::{Shown, Watch};

/// Both ends give up a bond that has had no link for this long.
const GRACE: std::time::Duration = std::time::Duration::from_secs(60);
