//! Which end of a collection has which exit code; sending has the same totals.

use crate::commands::exit::Code;
use thalweg_gather::{Outcome, Totals, landing::OpenError, run::GatherError};

/// Of a collection that came to an end.
impl From<&Totals> for Code {
    fn from(totals: &Totals) -> Self {
        match totals.outcome {
            Outcome::Complete | Outcome::Planned if totals.late => Self::Late,
            Outcome::Complete | Outcome::Planned => Self::Done,
            Outcome::Partial => Self::Partial,
            Outcome::Interrupted => Self::Interrupted,
            // What stops a collection whose sources answer is the disk here.
            Outcome::Failed => Self::Disk,
        }
    }
}

/// Of one that did not begin.
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
