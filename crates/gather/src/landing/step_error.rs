//! Classifies system errors: those of one file, and those that affect all files.

use super::plan::TreePlan;
use rustix::io::Errno;
use std::io;
use thalweg_base::space::Space;
use thalweg_files::land::LandError;
use thalweg_part::PartError;

/// Why a step failed.
#[derive(Debug)]
pub(super) enum StepError {
    /// An error of this target alone.
    One(String),
    /// Nothing more can be stored.
    All(LandError),
}

impl TreePlan {
    /// Classifies the error of doing `what` to a target.
    pub(super) fn classify_error(&self, what: &str, error: Errno) -> StepError {
        let source = io::Error::from(error);
        if ends_all(&source) {
            return StepError::All(self.end_of_all(what, &source));
        }
        StepError::One(error_text(what, error))
    }

    /// Classifies the error of a part.
    pub(super) fn classify_part_error(&self, error: &PartError) -> StepError {
        match error {
            PartError::Io { what, source, .. } if ends_all(source) => {
                StepError::All(self.end_of_all(what, source))
            }
            PartError::DiskFull { .. } | PartError::NoInodes { .. } => {
                StepError::All(self.end_of_all("write", &io::ErrorKind::StorageFull.into()))
            }
            other => StepError::One(part_error_text(other)),
        }
    }

    /// The error that ends the collection.
    pub(super) fn end_of_all(&self, what: &str, error: &io::Error) -> LandError {
        let into = self.into.display();
        let (full, quota) = (io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded);
        let why = if [full, quota].contains(&error.kind()) {
            let why = Space::at(&self.into).why_full();
            format!(
                "{why}: nothing more can be written to {into}; the received data is kept: {} and \
                 run the same command again",
                why.advice()
            )
        } else {
            format!(
                "cannot {what} files in {into}: {error}; complete files are kept: run the same command again"
            )
        };
        LandError::All { why, kind: error.kind() }
    }
}

/// The message for an error of doing `what`; the file is named separately.
pub(super) fn error_text(what: &str, error: Errno) -> String {
    format!("cannot {what} it: {}", io::Error::from(error))
}

/// The message for an error of a part, without its path: the error names a path in /proc, by which the part was opened.
pub(super) fn part_error_text(error: &PartError) -> String {
    match error {
        PartError::Io { what, source, .. } => format!("cannot {what} it: {source}"),
        PartError::Thread(source) => format!("it could not be written: {source}"),
        PartError::Busy(_) => "another process is already writing it".into(),
        PartError::NotAFile { what, .. } => format!("it is {what} here; move it away"),
        PartError::Incomplete { missing, .. } => format!("{missing} of it are missing"),
        PartError::PastEnd(_) => "data past its end was received".into(),
        PartError::Digest { .. } | PartError::Piece { .. } => {
            "its content does not match the expected hash".into()
        }
        PartError::DiskFull { .. } => "the disk is full".into(),
        PartError::NoInodes { .. } => "no inodes are left".into(),
        PartError::Unproven(_) => "the existing data cannot be verified".into(),
        PartError::Unsynced(_) => "it could not be synced: run the same command again".into(),
    }
}

/// Whether the next file would fail in the same way.
fn ends_all(error: &io::Error) -> bool {
    const ALL: [Errno; 7] = [
        Errno::IO,
        Errno::ROFS,
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
    ];
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    code.is_some_and(|code| ALL.contains(&code)) || error.kind() == io::ErrorKind::StorageFull
}
