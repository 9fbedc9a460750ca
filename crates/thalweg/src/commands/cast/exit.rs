//! What the exit codes are, and which end has which.

use thalweg_node::cast::source::{CastError, Outcome, SurveyError, Totals};

/// How a call ended; the numbers are documented in the help. Those that other commands have as well
/// mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// All have it.
    Done = 0,
    /// None of the others.
    Other = 1,
    /// Wrong usage.
    Usage = 2,
    /// Nobody has it.
    Network = 4,
    /// The file.
    Disk = 6,
    /// Some have it.
    Partial = 23,
    /// Ctrl-C or SIGTERM.
    Interrupted = 130,
}

impl Code {
    /// The same, where standard output could not be written.
    pub fn unwritten(self) -> Self {
        if self == Self::Done { Self::Other } else { self }
    }

    /// Of a cast that came to an end.
    pub fn of(totals: &Totals) -> Self {
        match totals.outcome {
            Outcome::Complete => Self::Done,
            _ if totals.why.is_some() => Self::Disk,
            Outcome::Partial => Self::Partial,
            Outcome::Failed => Self::Network,
            Outcome::Interrupted => Self::Interrupted,
        }
    }

    /// Of one that did not begin.
    pub fn of_error(error: &CastError) -> Self {
        match error {
            CastError::Survey(SurveyError::Io { .. }) | CastError::Describe(_) => Self::Disk,
            CastError::Survey(_)
            | CastError::Shape(_)
            | CastError::Name(_)
            | CastError::Member(_)
            | CastError::Nobody => Self::Usage,
            CastError::Roster(_) | CastError::Broken => Self::Other,
        }
    }
}
