//! The source: describes an object, offers it to receivers, and serves it until all of them have it.

mod ask;
mod describe;
mod doubt;
mod event;
mod forget;
mod hosts;
mod job;
mod member;
mod plan;
mod predict;
mod progress;
mod rings;
mod run;
mod share;
mod survey;

pub use describe::DescribeError;
pub use event::{
    Event, EventSink, Outcome, ParentBytes, Planned, ReceiverProgress, RelayProgress, Standing,
    Totals,
};
pub use forget::{ForgetError, Forgotten, Told, forget};
pub use job::{End, JobError, Listed, Receiver, Record, list};
pub use predict::Predicted;
pub use rings::Forwarding;
pub use run::{CastError, Request, cast};
pub use survey::SurveyError;
pub use thalweg_part::Fidelity;
