//! Events of the measurements, for the operator.

use std::fmt;

/// An event. It prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeasureEvent {
    /// A relay does not respond.
    Down {
        /// Its name.
        node: String,
        /// The reason, for people.
        why: String,
    },
    /// A relay responds again.
    Up {
        /// Its name.
        node: String,
    },
    /// The two ends of a measurement contradict each other.
    Disagreement {
        /// The leg's sender.
        from: String,
        /// The leg's receiver.
        to: String,
        /// The end that claims more, and its rate, bit/s.
        claimed: (String, u64),
        /// The rate that the other end saw, bit/s; `None`: it is present but reports nothing.
        seen: Option<u64>,
    },
    /// A member sent an invalid report.
    Refused {
        /// The member's name.
        node: String,
        /// The first reason.
        why: String,
        /// Refused reports since the last line, of any member.
        more: u64,
    },
    /// The history cannot be stored at present. Holds the reason.
    Unkept(String),
    /// The history can be stored again.
    Kept {
        /// Entries that were lost meanwhile.
        lost: u64,
    },
    /// A part of the service panicked, which is a bug; the part is retried.
    Broken {
        /// The task of that part.
        what: &'static str,
    },
    /// Earlier measurements cannot be read. Holds the reason.
    Forgotten(String),
}

impl fmt::Display for MeasureEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down { node, why } => write!(f, "{node} is not measured and not offered: {why}"),
            Self::Up { node } => write!(f, "{node} answers again"),
            Self::Disagreement { from, to, claimed: (who, bps), seen: None } => write!(
                f,
                "of the leg {from} → {to}, {who} claims {bps} bit/s, and the other end, which is \
                 there, says nothing: no plan is made with it; `thalweg paths` shows all \
                 disagreements"
            ),
            Self::Disagreement { from, to, claimed: (who, bps), seen: Some(seen) } => write!(
                f,
                "of the leg {from} → {to}, {who} claims {bps} bit/s, and the other end saw \
                 {seen} bit/s, which is believed; `thalweg paths` shows all disagreements"
            ),
            Self::Refused { node, why, more: 0 } => {
                write!(f, "{node} reports what cannot be: {why}")
            }
            Self::Refused { node, why, more } => write!(
                f,
                "{node} reports what cannot be: {why}; so did {more} reports since the last line"
            ),
            Self::Broken { what } => write!(
                f,
                "{what} failed through a defect of this program: please report it, with the \
                 panic's message on standard error; will be tried again, and the last result stays \
                 in use"
            ),
            Self::Unkept(why) => write!(
                f,
                "measurements are not kept for now: {why}; measuring goes on, the newest are kept \
                 in memory until that is possible"
            ),
            Self::Kept { lost: 0 } => f.write_str("measurements are kept again, none was lost"),
            Self::Kept { lost } => {
                write!(f, "measurements are kept again; {lost} old ones are lost")
            }
            Self::Forgotten(why) => write!(
                f,
                "earlier measurements cannot be read yet: {why}; trying again each minute"
            ),
        }
    }
}
