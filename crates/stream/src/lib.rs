//! Live media from one member to many, each at the quality that its path takes.
//!
//! In go frames of publishers, and what subscribers want; out come the frames that each leg takes in time, and what is
//! known of the legs.
//!
//! ```text
//! a program ─► publisher ─► Stream: a ring of the newest frames ─┬► parent ─► LegQueue ─► a member's node
//! a parent  ─► child     ─►   (chains, ages)                     └► parent ─► LegQueue ─► a program
//! oracle    ─► Plan      ─► which parent, which quality for which child
//! each leg  ─► status    ─► rates, frames left out and why, delays ─► oracle, `thalweg stream status`
//! ```
//!
//! A leg never waits for another: each has its queue, from which frames are left out before the socket, the least
//! valuable first (decision 0098).

mod adaptation;
mod chains;
mod child;
mod clock;
pub mod container;
mod counts;
mod frame;
mod hub;
mod io;
mod leg_queue;
mod levels;
mod numbered;
mod parent;
mod plan;
mod publisher;
mod rates;
mod ring;
mod settings;
mod status;
mod stream;
mod transit;
mod ts;

pub mod local;

pub use adaptation::ToMeasure;
pub use chains::Chains;
pub use clock::Clock;
pub use counts::Counts;
pub use frame::{Frame, FrameClass};
pub use hub::Streams;
pub use leg_queue::{Bounds, ByClass, LegQueue, Next, Quality, Tally};
pub use levels::{Chosen, Levels, Measured, Sample, utility};
pub use numbered::{Entry, Numbered, class_of, is_video};
pub use plan::{Ordered, Plan, Planned, Way};
pub use ring::Ring;
pub use settings::{Adapt, Measure, Settings};
pub use status::{LegStatus, StreamStatus, Taker};
pub use stream::{Head, Source, Stream, Wanted};
pub use transit::Transit;
pub use ts::{Passed, TsJoiner, TsSplitter};
