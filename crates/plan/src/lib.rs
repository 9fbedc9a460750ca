//! From estimates to plans (pure): nothing here reads a clock, a socket or a file.
//!
//! ```text
//! samples of a download's paths ─► selection   ─► what each path fetches next          UKAIRO §3.2
//! what pairs know               ─► schedule, dispatch ─► who measures whom, when       UKAIRO §2.3
//! rates of legs                 ─► ranking, adaptive  ─► relays worth trying           UKAIRO §2.2, Alg. 2
//! rates, amounts, time          ─► collection, mincost ─► flows, paths, timetables     Cheng et al. §III, IV
//! rates, accesses               ─► tree        ─► who sends a cast to whom             ROMA §3
//! ```

pub mod adaptive;
pub mod advice;
pub mod assignment;
pub mod collection;
pub mod completion;
pub mod dispatch;
pub mod draw;
pub mod graph;
pub mod maxflow;
pub mod mincost;
pub mod ranking;
pub mod schedule;
pub mod selection;
pub mod tree;

pub use graph::Graph;
