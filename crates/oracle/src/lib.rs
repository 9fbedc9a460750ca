//! The control plane: tokens, members, the signed roster, measurements, and the API that serves them.
//!
//! In go requests and reports of members; out come signed rosters, orders to measure, and rankings
//! of detours. No data of users passes through it: without it nodes go on with their cached roster.
//!
//! ```text
//! token, key ─► join ───────┐
//! operator   ─► revoke ─────┴─► one transaction: change, next roster ─► publish ─► members
//! reports    ─► measure: checks ─► estimates ─┬─► plan: schedule ─► signed orders ─► members
//!                   │                         └─► ranking, assignment ─► lists of detours ─► clients
//!                   └─► store: history of measurements
//! reports of streams ─► streams ─► plan: trees and levels ─► configurations ─► members
//! ```
//!
//! An [`Oracle`] keeps three files in one directory: `mesh.key` (0600), which signs
//! rosters; `oracle.db`, the database; and `roster`, a copy of the newest signed
//! roster. Every change is one transaction of the database, in which the next roster
//! is signed and kept; then it is published; then the change is answered. If the
//! database fails, the newest roster is still served from memory.
//!
//! Versions only grow. The next one is the last plus one, or the date in seconds if
//! that is greater, so that a database restored from a backup does not fall behind
//! what members have seen; and every start publishes anew. If the copy is newer than
//! the database (which was restored, or is lost), the copy is believed: members that are
//! not in it were revoked. Any member's cached roster will do as the copy.

mod admission;
mod api;
mod caller;
mod config;
mod connection;
mod copy;
mod election;
mod error;
mod event;
mod founding;
mod limits;
mod measure;
mod metrics;
mod oracle;
mod places;
mod registry;
mod sightings;
mod store;
mod streams;

pub use caller::Caller;
pub use config::{Clock, Config, JoinLimits};
pub use error::{OracleError, Refusal};
pub use event::Event;
pub use measure::{MeasureConfig, MeasureCounts, MeasureEvent, Order, Pace, SeedLeg};
pub use metrics::OracleMetrics;
pub use oracle::Oracle;
pub use store::{Database, Place, Server, StoreError, UrlError};
