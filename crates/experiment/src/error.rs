//! Errors of experiments, with messages that say what to do.

use std::{io, path::PathBuf};
use thiserror::Error;

/// An experiment cannot be read, run or recorded.
#[derive(Debug, Error)]
pub enum ExperimentError {
    /// There is no such plan.
    #[error("there is no experiment `{name}`; available (see `thalweg-bench experiment list`): {}", .known.join(", "))]
    Unknown {
        name: String,
        /// The names of existing plans.
        known: Vec<String>,
    },
    /// The plan's text is invalid.
    #[error("the plan {plan} is invalid: {why}")]
    Plan {
        /// The plan's name or file.
        plan: String,
        /// What is wrong, and where.
        why: String,
    },
    /// A placeholder or a quantity in the plan does not resolve.
    #[error("{at}: {why}")]
    Value {
        /// The place in the plan.
        at: String,
        why: String,
    },
    /// An operation on a file failed.
    #[error("cannot {verb} {}", .path.display())]
    File {
        /// The operation: `read`, `write` …
        verb: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The emulated network failed.
    #[error("the lab failed: {0}")]
    Lab(String),
    /// A service of the plan did not start, or ended.
    #[error("service {service}: {why}")]
    Service {
        /// Its name and host.
        service: String,
        /// The reason, with the end of its output.
        why: String,
    },
    /// The user or the system asked to stop.
    #[error("interrupted; finished rounds are kept; run the same command again to continue")]
    Interrupted,
    /// A result may be committed only from the sources that produced it.
    #[error(
        "a committed result must come from committed sources, not from `{commit}`: commit or stash \
         the changes in the tree, and run the program from the checkout's own target directory \
         on a plan of that checkout"
    )]
    Uncommitted {
        /// The commit with `-dirty` or `-foreign`, or `unknown`.
        commit: String,
    },
    /// Writing to standard output failed.
    #[error("{0}")]
    Unprinted(io::Error),
    /// Any other error, as a complete message.
    #[error("{0}")]
    Other(String),
}

/// The result type of this crate.
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
