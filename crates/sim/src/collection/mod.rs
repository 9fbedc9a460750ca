//! Data collection in a transit-stub network: the paper's evaluation (§VI), at full size.
//!
//! Source: Cheng et al., *Large-scale Data Collection: a Coordinated Approach* (INFOCOM 2004).
//! Links are shared max-min fairly, as by long TCP flows of equal round-trip times. Packets, losses and round trips
//! show only as the time that a connection takes to get up to speed.

mod background;
mod bound;
mod evaluation;
mod fluid;
mod methods;
mod run;
#[cfg(test)]
mod tests;
mod topology;

pub use background::{Background, DrawnFlow, OnOff, Ratio};
pub use bound::shortest;
pub use evaluation::{Evaluation, EvaluationError, Settings, draw_amounts, figures};
pub use methods::MethodKind;
pub use topology::{Topology, background_ends, bistros};
