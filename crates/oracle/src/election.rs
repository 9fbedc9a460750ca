//! Which of several oracles on one database schedules.

use crate::Oracle;

/// Who schedules, as this oracle knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody, or not known.
    #[default]
    Unknown,
    /// This oracle, with this number: greater than that of everybody before.
    Elected {
        /// The lease's number, below 2³³ until the year 2242: `term << 30` leaves room for
        /// a number of one's own in an `i64`.
        term: u64,
    },
    /// Another.
    Another(thalweg_units::NodeId),
}

impl Oracle {
    /// Who schedules now. An elected oracle whose lease has run out by its own steady clock
    /// is elected no more, also while it does not reach the database.
    pub(crate) fn standing(&self) -> Standing {
        Standing::Unknown
    }
}
