//! The control plane: tokens, members, the signed roster, measurements, and the API that serves them.
//!
//! Members send requests and reports; the oracle sends signed rosters, orders to measure, and rankings of detours. User
//! data never passes through it, and nodes continue with their cached roster when it is down.
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
//! An [`Oracle`] keeps three files in one directory: `mesh.key` (mode 0600), which signs rosters; `oracle.db`, the
//! database; and `roster`, a copy of the newest signed roster. A new mesh's root key is in `root.key`, until its owner
//! moves it to a safe place. Each change is one database transaction, which also
//! signs and stores the next roster; then the roster is published; then the change is answered. If the database fails,
//! the newest roster is still served from memory.
//!
//! Versions only grow. The next version is the last plus one, or the date in seconds if that is greater, so that a
//! database restored from a backup does not fall behind the versions that members have seen. Each start publishes a new
//! version. If the copy is newer than the database (which was restored or lost), the copy wins, and members missing
//! from it count as revoked. Any member's cached roster can serve as the copy.

mod admission;
mod api;
mod caller;
mod config;
mod connection;
mod connection_limit;
mod election;
mod error;
mod event;
mod founding;
mod limits;
mod measure;
mod mesh_keys;
mod metrics;
mod oracle;
mod reach;
mod registry;
mod roster_copy;
mod sightings;
mod store;
mod streams;

pub use caller::Caller;
pub use config::{Clock, Config, JoinLimits};
pub use error::{OracleError, Refusal};
pub use event::Event;
pub use measure::{MeasureConfig, MeasureCounts, MeasureEvent, Pace, ScheduleKind, SeedLeg};
pub use mesh_keys::{Rekeyed, rekey};
pub use metrics::OracleMetrics;
pub use oracle::Oracle;
pub use store::{Database, DatabaseName, Server, StoreError, UrlError};
