//! The description of a network: as text (a TOML file, see docs/lab.md) and resolved.
//!
//! [`Topology`] is written by a user or built by a test. [`Topology::resolve`] expands its generator, splits duplex
//! links into two directions and builds the path table. The result, [`Resolved`], has only dense indices, and is what
//! [`emu`](crate::emu) emulates. This module has no side effects on the machine.

mod change;
mod classes;
mod cross;
mod draw;
mod error;
pub mod generate;
mod link;
mod loss;
mod paths;
mod plan;
mod resolve;
mod spec;
mod steps;
mod text;

#[cfg(test)]
mod tests;

pub use change::LinkChange;
pub(crate) use classes::{CROSS, OTHER};
pub use classes::{ClassPlan, ClassSpec, Protocol};
pub use cross::{CrossConfig, CrossKind, CrossShape, CrossSpec};
pub use draw::{Draws, derive_seed};
pub use error::TopologyError;
pub use generate::Generate;
pub use link::{LinkConfig, LinkSpec, Queue, Reorder};
pub use loss::{Gilbert, Loss};
pub use paths::PathTable;
pub use plan::{CrossPlan, HostPlan, InterfacePlan, LinkPlan, Resolved};
pub use spec::{DefaultPath, HostSpec, PathSpec, Topology};
pub use steps::{StepWalk, Steps};
pub use text::Probability;
