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
mod beyond;
mod connection;
mod deadline;
mod demand;
mod liveness;
mod nature;
mod period;
mod policy;
mod reorder;
mod room;
mod rules;
mod sender;
pub mod stripe;
mod thrift;

pub use affinity::{Affinity, kept_to};
pub use applications::{Application, Applications};
pub use beyond::Beyond;
pub use connection::{Candidate, ConnectionMethod, ConnectionScheduler, Pick, Why};
pub use deadline::{Offer, begins, cheapest};
pub use demand::Demand;
pub use liveness::{Liveness, State};
pub use nature::Nature;
pub use period::Period;
pub use policy::{Cap, Linkable, Policy, Tier, allowed, linked};
pub use reorder::{Acks, Reorder, Unfit};
pub use room::Room;
pub use rules::{Action, Rule, Rules};
pub use sender::{Chunk, Freed, Sender, SenderSettings, Unsent};
pub use stripe::{Link, LinkId, StripeMethod, StripeScheduler, Verdict};
pub use thrift::Thrift;
