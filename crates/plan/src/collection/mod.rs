//! Coordinated data collection: moves data of many hosts to one, as a flow over time.
//!
//! Source: Cheng, Chou, Golubchik, Khuller, Wan, *Large-scale Data Collection: a Coordinated
//! Approach* (INFOCOM 2004), §III and §IV.
//!
//! ```text
//! Problem (G_H, amounts) ─ horizon ─► T ─ expanded (G_T) ─ mincost ─► f_T ─ decompose ─► Timetable
//! Timetable ─ Release (PathSync, PathDelay) ─► which transfer may begin now
//! ```
//!
//! [`Problem`] is in *data units* and *slots*; a [`Grid`] makes it from rates and bytes. [`Problem::timetable`] is the
//! paper's plan and [`Release`] carries it out. [`Direct`] holds the methods that it is compared with,
//! [`Problem::best_paths`] its non-coordinated rival, and [`Problem::fluid`] the plan without slots, for meshes that
//! are too large for slots.

mod best_path;
mod decompose;
mod direct;
mod exchange;
mod fluid;
mod grid;
mod horizon;
mod leftover;
mod lp;
mod prices;
#[cfg(test)]
mod prices_tests;
mod problem;
mod rated_path;
mod release;
#[cfg(test)]
mod release_tests;
mod rounding;
mod shared_legs;
pub mod steering;
#[cfg(test)]
mod tests;
mod time_expanded;
mod timetable;
#[cfg(test)]
mod variants_tests;
mod whole_files;

pub use best_path::BestPath;
pub use direct::{Direct, DirectRelease};
pub use exchange::{Exchange, Parcel};
pub use fluid::Fluid;
pub use grid::Grid;
pub use prices::{CurvePoint, PriceError, PricedPlan, Prices};
pub use problem::{HostLimits, Leg, Problem, ProblemError, Supply};
pub use rated_path::RatedPath;
pub use release::{Release, Rule, Transfer};
pub use time_expanded::Objective;
pub use timetable::{PlanError, TimedPath, Timetable};
pub use whole_files::WholeFiles;
