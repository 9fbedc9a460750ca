//! Events of the measurements, for the operator.

use std::fmt;

/// An event. It prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeasureEvent {
    /// A relay does not respond.
    Down {
        node: String,
        /// The reason, for people.
        why: String,
    },
    /// A relay responds again.
    Up { node: String },
    /// The two ends of a measurement contradict each other.
    Disagreement {
        from: String,
        to: String,
        /// The end that claims more, and its rate, bit/s.
        claimed: (String, u64),
        /// The rate that the other end saw, bit/s; `None`: it is present but reports nothing.
        seen: Option<u64>,
    },
    /// A member sent an invalid report.
    Refused {
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
            Self::Down { node, why } => write!(
                f,
                "{node} is no longer measured or offered as a \
                                                   relay: {why}"
            ),
            Self::Up { node } => write!(f, "{node} answers again"),
            Self::Disagreement { from, to, claimed: (who, bps), seen: None } => write!(
                f,
                "for the leg {from} → {to}, {who} reports {bps} bit/s, but the other end, which is \
                 online, reports nothing, so plans do not use this rate; `thalweg paths` shows all \
                 disagreements"
            ),
            Self::Disagreement { from, to, claimed: (who, bps), seen: Some(seen) } => write!(
                f,
                "for the leg {from} → {to}, {who} reports {bps} bit/s, but the other end measured \
                 {seen} bit/s, which is used; `thalweg paths` shows all disagreements"
            ),
            Self::Refused { node, why, more: 0 } => {
                write!(f, "{node} sent an invalid report: {why}")
            }
            Self::Refused { node, why, more } => write!(
                f,
                "{node} sent an invalid report: {why}; {more} more reports were refused since the \
                 last line"
            ),
            Self::Broken { what } => write!(
                f,
                "{what} failed because of a bug: please report it with the panic's message from \
                 standard error; the task is tried again, and its last result stays in use"
            ),
            Self::Unkept(why) => write!(
                f,
                "cannot store measurements: {why}; measuring continues, and the newest results are \
                 kept in memory until they can be stored"
            ),
            Self::Kept { lost: 0 } => f.write_str("measurements are stored again; none was lost"),
            Self::Kept { lost } => {
                write!(f, "measurements are stored again; {lost} old ones were lost")
            }
            Self::Forgotten(why) => {
                write!(f, "cannot read earlier measurements yet: {why}; trying again every minute")
            }
        }
    }
}
