//! The exit codes of the commands that move data: `get`, `gather`, `send`, `cast`.
//!
//! Each command maps its totals and errors to codes by `From`, in its own module; its help and its page in `docs` list
//! its codes.

use std::process::ExitCode;
use thalweg_console::INTERRUPTED;

/// The result of a command. A number means the same for every command.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Everything was delivered.
    Done = 0,
    /// A failure without a code of its own.
    Other = 1,
    /// Wrong usage: the same command line cannot succeed.
    Usage = 2,
    /// The server refuses the request or does not have the file.
    Refused = 3,
    /// No source, or no receiver, could be reached.
    Network = 4,
    /// Wrong bytes: a hash differs, or the file keeps changing.
    Bytes = 5,
    /// The disk or a file on it failed.
    Disk = 6,
    /// Another process uses the same target.
    Busy = 7,
    /// The deadline was missed.
    Late = 8,
    /// The reader of standard output is gone.
    Unread = 9,
    /// Only a part was delivered; rsync has the same number.
    Partial = 23,
    /// Interrupted by Ctrl-C or SIGTERM.
    Interrupted = INTERRUPTED,
}

impl Code {
    /// The code for a command's totals.
    pub fn of<T>(totals: &T) -> Self
    where
        for<'a> Self: From<&'a T>,
    {
        totals.into()
    }

    /// The code for an error that stopped a command or kept it from starting.
    pub fn of_error<E>(error: &E) -> Self
    where
        for<'a> Self: From<&'a E>,
    {
        error.into()
    }

    /// The code if standard output, in addition, could not be written.
    pub fn unwritten(self) -> Self {
        if self == Self::Done { Self::Other } else { self }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}
