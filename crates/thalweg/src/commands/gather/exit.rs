//! What the exit codes are, and which end has which.

use thalweg_node::gather::{Outcome, Totals, landing::OpenError, run::GatherError};

/// How a call ended; the numbers are documented in the help and in `docs/gather.md`. Those that
/// `thalweg get` has as well mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Everything is there.
    Done = 0,
    /// None of the others.
    Other = 1,
    /// Wrong usage.
    Usage = 2,
    /// No source was reached.
    Network = 4,
    /// The disk.
    Disk = 6,
    /// Another collection lands there.
    Busy = 7,
    /// After the deadline.
    Late = 8,
    /// Some files failed, the rest is there: rsync's number for that.
    Partial = 23,
    /// Ctrl-C or SIGTERM.
    Interrupted = 130,
}

impl Code {
    /// The same, where standard output could not be written.
    pub fn unwritten(self) -> Self {
        if self == Self::Done { Self::Other } else { self }
    }

    /// Of a collection that came to an end.
    pub fn of(totals: &Totals) -> Self {
        match totals.outcome {
            Outcome::Complete | Outcome::Planned if totals.late => Self::Late,
            Outcome::Complete | Outcome::Planned => Self::Done,
            Outcome::Partial => Self::Partial,
            Outcome::Interrupted => Self::Interrupted,
            // What stops a collection whose sources answer is the disk here.
            Outcome::Failed => Self::Disk,
        }
    }

    /// Of one that did not begin.
    pub fn of_error(error: &GatherError) -> Self {
        match error {
            GatherError::Name(_) | GatherError::Exclude(_) | GatherError::Forecast(_) => {
                Self::Usage
            }
            GatherError::NoSource => Self::Network,
            GatherError::Open(OpenError::Locked(_)) => Self::Busy,
            GatherError::Open(OpenError::Collisions(_)) => Self::Usage,
            GatherError::Open(_) => Self::Disk,
            GatherError::Roster(_) | GatherError::Broken => Self::Other,
        }
    }
}
