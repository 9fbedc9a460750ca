//! Several interfaces used as one (pure): DBAS, by Habak, Youssef and Harras.
//!
//! Inputs are connections, or chunks of a stream, with the state of each interface and the time. The output is the
//! interface or link that carries each of them.
//!
//! ```text
//! a connection ─► ConnectionScheduler ◄─ Applications, Rules, Policy ─► one interface
//!
//! a stream ─► Sender ─► chunks ─► StripeScheduler ─► links ═══► Reorder ─► the stream
//!               ▲                                                 │
//!               └──── what arrived; Liveness: does a link answer? ┘
//! ```
//!
//! In *connection-oriented* mode a whole connection goes to one interface: [`ConnectionScheduler`], which weighs what
//! the [`Applications`] are expected to move. In *packet-oriented* mode, between two nodes, a stream is cut into chunks
//! that are striped over several *links*, one connection each. A [`Sender`] tracks which link carries which chunk, a
//! [`StripeScheduler`] chooses the link of the next one, [`Reorder`] restores the order at the far end, and
//! [`Liveness`] detects a link that has fallen silent. A [`Policy`] for each interface, and [`Rules`] for applications
//! and destinations, hold what the user allows.

mod affinity;
mod applications;
mod connection;
mod deadline;
mod demand;
mod liveness;
mod nature;
mod paid_reserve;
mod period;
mod policy;
mod relayed_path;
mod reorder;
mod rules;
mod send_allowance;
mod sender;
pub mod stripe;

pub use affinity::{Affinity, keep_affinity};
pub use applications::{Application, Applications};
pub use connection::{Candidate, ConnectionMethod, ConnectionScheduler, Pick, PickReason};
pub use deadline::{Offer, cheapest_shares, must_begin};
pub use demand::Demand;
pub use liveness::{Liveness, State};
pub use nature::Nature;
pub use paid_reserve::PaidReserve;
pub use period::Period;
pub use policy::{Cap, LinkInterface, Policy, Tier, allowed_interfaces, link_interfaces};
pub use relayed_path::RelayedPath;
pub use reorder::{Acks, ChunkError, Reorder};
pub use rules::{Action, Rule, Rules};
pub use send_allowance::SendAllowance;
pub use sender::{AckError, Chunk, ReleasedChunk, Sender, SenderSettings};
pub use stripe::{Link, LinkId, StripeMethod, StripeScheduler, Verdict};
