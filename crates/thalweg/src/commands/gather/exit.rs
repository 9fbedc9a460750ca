//! The exit codes of `thalweg gather` and `thalweg send`, which have the same totals.

use crate::commands::exit::Code;
use thalweg_gather::{Outcome, Totals, landing::OpenError, run::GatherError};

/// The code of a collection that ran.
impl From<&Totals> for Code {
    fn from(totals: &Totals) -> Self {
        match totals.outcome {
            // What the plan leaves out, the collection would leave out, too.
            Outcome::Planned if totals.failed_files + totals.failed_sources > 0 => Self::Partial,
            Outcome::Complete | Outcome::Planned if totals.late => Self::Late,
            Outcome::Complete | Outcome::Planned => Self::Done,
            Outcome::Partial => Self::Partial,
            Outcome::Interrupted => Self::Interrupted,
            // If the sources answer, the local disk is what stops a collection.
            Outcome::Failed => Self::Disk,
        }
    }
}

/// The code of a collection that did not start.
impl From<&GatherError> for Code {
    fn from(error: &GatherError) -> Self {
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
