//! The source: describes an object, offers it to receivers, and serves it until all of them have it.

mod dry_run;
mod describe;
mod recheck;
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
    Event, EventSink, Outcome, ParentBytes, PlannedReceiver, ReceiverProgress, RelayProgress, ReceiverState,
    Totals,
};
pub use forget::{ForgetError, ForgetReport, ReceiverNotice, forget};
pub use job::{CastEnd, JobError, ListedCast, Receiver, CastRecord, list};
pub use predict::PredictedRates;
pub use rings::Forwarding;
pub use run::{CastError, Request, cast};
pub use survey::SurveyError;
pub use thalweg_part::Fidelity;
