//! The exit codes of `thalweg cast`.

pub use crate::commands::exit::Code;
use thalweg_cast::source::{CastError, JobError, Outcome, SurveyError, Totals};

/// The code of a cast that ran.
impl From<&Totals> for Code {
    fn from(totals: &Totals) -> Self {
        match totals.outcome {
            Outcome::Complete => Self::Done,
            _ if totals.why.is_some() => Self::Disk,
            Outcome::Partial => Self::Partial,
            Outcome::Failed => Self::Network,
            Outcome::Interrupted => Self::Interrupted,
        }
    }
}

/// The code of a cast that did not start.
impl From<&CastError> for Code {
    fn from(error: &CastError) -> Self {
        match error {
            CastError::Survey(SurveyError::Io { .. }) | CastError::Describe(_) => Self::Disk,
            CastError::Survey(_)
            | CastError::Shape(_)
            | CastError::Name(_)
            | CastError::Member(_)
            | CastError::Here(_)
            | CastError::Via(_)
            | CastError::NoPart(_)
            | CastError::Nobody => Self::Usage,
            CastError::Job(JobError::Running) => Self::Busy,
            CastError::Job(JobError::Io { .. }) => Self::Disk,
            CastError::Roster(_) | CastError::Ring(_) | CastError::Broken => Self::Other,
        }
    }
}
