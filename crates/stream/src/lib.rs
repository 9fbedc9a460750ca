//! Live media from one member to many, each at the quality that its path takes.

mod chains;
mod frame;
mod leg_queue;
mod numbered;
mod ring;
mod transit;

pub use chains::Chains;
pub use frame::{Frame, FrameClass};
pub use leg_queue::{Bounds, ByClass, LegQueue, Next, Quality, Tally};
pub use numbered::{Entry, Numbered, class_of, is_video};
pub use ring::Ring;
pub use transit::Transit;
