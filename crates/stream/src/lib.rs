//! Live media from one member to many, each at the quality that its path can carry.
//!
//! Publishers provide frames and subscribers request streams. The crate sends each subscriber the frames that its leg
//! can deliver in time, and reports the state of the legs.
//!
//! ```text
//! program ─► publisher ─► Stream: ring of the newest frames ─┬► parent ─► LegQueue ─► a member's node
//! parent  ─► child     ─►   (chains, ages)                   └► parent ─► LegQueue ─► a program
//! oracle  ─► Plan      ─► the parent of each stream, the quality for each child
//! leg     ─► status    ─► rates, dropped frames and reasons, delays ─► oracle, `thalweg stream status`
//! ```
//!
//! Legs do not wait for each other: each has its own queue, which drops the least valuable frames before they reach
//! the socket (decision 0098).

mod adaptation;
mod all_renditions;
mod chains;
mod child;
mod clock;
mod command;
pub mod container;
mod counts;
mod decoding_order;
mod entry;
mod frame_queue;
mod frame_rate;
pub mod hls;
mod hub;
mod intake_rates;
mod io;
mod leg_queue;
mod leg_rate;
mod levels;
mod local_client;
mod oracle_link;
mod oracle_plan;
mod oracle_report;
mod parent;
mod plan;
mod publisher;
mod rendition_choice;
mod renditions;
mod ring;
mod settings;
mod slots;
mod status;
mod stream;
mod table;
mod transcoder;
mod transit;
mod upstream;

pub mod local;

// Both count the same tracks and frames.
const _: () = assert!(thalweg_media::MAX_TRACKS == thalweg_wire::stream::leg::MAX_TRACKS);

pub use adaptation::{NeededMeasurement, NeededMeasurements};
pub use chains::Chains;
pub use clock::Clock;
pub use counts::Counts;
pub use entry::{Entry, NumberedFrame};
pub use hub::Streams;
pub use leg_queue::{Bounds, ByClass, LegQueue, NextItem, Quality, Tally};
pub use levels::{
    AvailableRate, LevelChoice, Levels, Measurement, QualityOption, RenditionRates, Sample,
};
pub use plan::{LegPlan, NoRoute, ParentRoute, Plan, StreamPlan};
pub use rendition_choice::RenditionChoice;
pub use ring::Ring;
pub use settings::{Adapt, Measure, Scheduler, Settings, Transcoder};
pub use status::{ChildKind, LegStatus, StreamStatus};
pub use stream::{Demand, Progress, Source, Stream};
pub use transcoder::run_transcoders;
pub use transit::Transit;
