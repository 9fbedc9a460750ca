//! Several interfaces as one (pure): DBAS, Habak, Youssef and Harras.
//!
//! In *connection-oriented* mode a whole connection goes to one interface:
//! [`ConnectionScheduler`], which weighs what the [`Applications`] are expected to move.
//! In *packet-oriented* mode, between two nodes, a stream is cut into chunks that are striped
//! over several *links*, one connection each: a [`Sender`] knows which chunks are where, a
//! [`StripeScheduler`] says who gets the next one, [`Reorder`] puts them back in order at the
//! far end, and [`Liveness`] tells when a link has fallen silent. What a user allows is a
//! [`Policy`] per interface and [`Rules`] for applications and destinations.

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
