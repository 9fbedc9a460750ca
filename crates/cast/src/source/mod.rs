//! The source: describes an object, offers it to receivers, and serves it until all of them have it.

mod describe;
mod dry_run;
mod event;
mod facts;
mod forget;
mod hosts;
mod job;
mod member;
mod plan;
mod predict;
mod progress;
mod recheck;
mod rings;
mod run;
mod share;
mod survey;

pub use describe::DescribeError;
pub use event::{
    Event, EventSink, Outcome, ParentBytes, PlannedReceiver, ReceiverProgress, ReceiverState,
    RelayProgress, Totals,
};
pub use forget::{ForgetError, ForgetReport, ReceiverNotice, forget};
pub use job::{CastEnd, CastRecord, JobError, ListedCast, Receiver, list};
pub use predict::PredictedRates;
pub use rings::Forwarding;
pub use run::{CastError, Request, cast};
pub use survey::SurveyError;
pub use thalweg_part::Fidelity;
