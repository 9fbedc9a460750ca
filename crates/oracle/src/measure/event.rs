//! What an operator should know of measuring.

use std::fmt;

/// Something that happened; prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeasureEvent {
    /// A relay does not answer.
    Down {
        /// Its name.
        node: String,
        /// For people.
        why: String,
    },
    /// It answers again.
    Up {
        /// Its name.
        node: String,
    },
    /// The two ends of a measurement say different things.
    Disagreement {
        /// The leg's sender.
        from: String,
        /// The leg's receiver.
        to: String,
        /// Who claims more, and what; bit/s.
        claimed: (String, u64),
        /// What the other saw; bit/s; none: it says nothing, though it is there.
        seen: Option<u64>,
    },
    /// A member reported what cannot be.
    Refused {
        /// Who.
        node: String,
        /// The first reason.
        why: String,
        /// Refused ones since the last line, of whomever.
        more: u64,
    },
    /// The history is not kept for now.
    Unkept(String),
    /// It is kept again; so many entries are lost.
    Kept {
        /// How many.
        lost: u64,
    },
    /// A part of the service panicked, which is a mistake in this program; it is tried again.
    Broken {
        /// What that part does.
        what: &'static str,
    },
    /// What was measured before is not known.
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
                "{what} broke off, which is a mistake in this program: please report it, with what \
                 standard error says of a panic; it is tried again, and the last result is used"
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
                "what was measured before is not known yet: {why}; it is asked for again each minute"
            ),
        }
    }
}
