//! What can go wrong with an experiment, in words that say what to do.

use std::{io, path::PathBuf};
use thiserror::Error;

/// Why an experiment could not be read, run or recorded.
#[derive(Debug, Error)]
pub enum ExperimentError {
    /// No such plan.
    #[error("there is no experiment `{name}`; `thalweg-bench experiment list` shows: {}", .known.join(", "))]
    Unknown {
        /// As asked for.
        name: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// The plan's text has a fault.
    #[error("the plan {plan} cannot be used: {why}")]
    Plan {
        /// The plan's name or file.
        plan: String,
        /// What is wrong and where.
        why: String,
    },
    /// A placeholder or a quantity in the plan does not resolve.
    #[error("{at}: {why}")]
    Value {
        /// Where in the plan.
        at: String,
        /// What is wrong.
        why: String,
    },
    /// A file.
    #[error("cannot {verb} {}", .path.display())]
    File {
        /// What was tried: `read`, `write` …
        verb: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The emulated network.
    #[error("the lab: {0}")]
    Lab(String),
    /// A service of the plan did not come up or ended.
    #[error("service {service}: {why}")]
    Service {
        /// Its name and host.
        service: String,
        /// With the end of what it said.
        why: String,
    },
    /// The user or the system asked to stop.
    #[error("interrupted; finished rounds are kept, the same command goes on from them")]
    Interrupted,
    /// A result may be committed only from the sources that produced it.
    #[error(
        "a committed result must come from committed sources, not from `{commit}`: commit or stash \
         what makes the tree dirty, and run the program in the checkout's own target directory \
         on a plan of that checkout"
    )]
    Uncommitted {
        /// As found, with its `-dirty` or `-foreign`, or `unknown`.
        commit: String,
    },
    /// Standard output takes no more.
    #[error("{0}")]
    Unprinted(io::Error),
    /// Anything else, in full words.
    #[error("{0}")]
    Other(String),
}

/// The result of everything here.
pub type Result<T, E = ExperimentError> = std::result::Result<T, E>;

impl ExperimentError {
    /// For `map_err` on file operations.
    pub(crate) fn file(
        verb: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { verb, path, source }
    }

    /// For `map_err` on values of the plan.
    pub(crate) fn value(at: impl Into<String>, why: impl ToString) -> Self {
        Self::Value { at: at.into(), why: why.to_string() }
    }
}
