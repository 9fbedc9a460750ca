//! Collects files from many nodes to this host. The destination pulls the data and owns the job.
//!
//! Input: members, patterns and path estimates. Output: files in one directory, and a record of the job. [`send`] is
//! the opposite direction: files of this host go to a directory of one node.
//!
//! Source: Cheng et al., *Large-scale Data Collection: a Coordinated Approach* (INFOCOM 2004). The planners are in
//! `plan::collection`, the messages in `wire::object`, the serving end in [`thalweg_files`].
//!
//! ```text
//! listings ─► landing: what is missing ─► Work ─► executor: fluid, slotted ─► Land ─► files
//!                                          ▲         │ pieces that failed
//!                                          └─────────┘
//! ```

mod collect_context;
mod event;
mod facts;
mod failures;
pub mod fluid;
mod forecast;
mod grid;
mod idle_remotes;
pub mod landing;
mod method;
mod method_name;
mod prices;
mod reads;
pub mod run;
pub mod send;
pub mod slotted;
mod work;

pub use collect_context::CollectContext;

pub use event::{
    Changes, Event, EventSink, FileListed, NodeStorage, Outcome, Progress, SharedBottleneck,
    SourceProgress, SourceTotals, Totals,
};
pub use facts::{Connections, WatchedPath};
pub use forecast::{Forecast, ForecastError, ForecastInput, Plan, PlannedPath, PricePoint};
pub use grid::choose as choose_grid;
pub use idle_remotes::IdleRemotes;

pub use method::Method;
pub use method_name::{MethodName, MethodNameError};

pub use prices::PriceList;

pub use work::Work;
