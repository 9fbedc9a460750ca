//! The queue of a daemon's jobs: which run now, and what became of the others.
//!
//! A job is one command line of `thalweg`. The daemon runs it as a child process with `--json`, so that a job does
//! exactly what the command does in a terminal (decision 0107). Commands in a terminal register themselves, and are
//! listed too.
//!
//! ```text
//! requests (API) ─► Jobs ─► Queue (pure)  ─► what to start, stop, keep
//!                    │  └─► Journal        ─► a synced record for each change of state
//!                    ├─► Runner: a thread and a process for each running job ─► events of `--json`
//!                    └─► ChangeLog ─► readers of `/v1/events`
//! ```

mod changes;
mod command_line;
mod job;
mod jobs;
mod journal;
mod queue;
mod runner;
mod start_time;
mod window;

pub use changes::{Change, ChangeId, Reset};
pub use command_line::{CommandError, VERBS, quoted, without_secrets};
pub use jiff::{Timestamp, tz::TimeZone};
pub use job::{
    Job, JobRequest, JobState, Origin, PathProgress, Priority, ReceiverProgress, TerminalRequest,
    WaitsFor,
};
pub use jobs::{JobError, Jobs, JobsSettings, Registration};
pub use runner::{JOB_VARIABLE, NOT_NOW, end_with_parent, run_child};
pub use start_time::{StartTimeError, parse_start_time};
pub use window::{DailyWindow, WindowError};
