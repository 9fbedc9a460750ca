//! The exit codes of the commands that move data: `get`, `gather`, `send`, `cast`.
//!
//! Which of a command's ends has which is said beside it, by `From` its totals and its errors; its
//! help and its page in `docs` name those that it has.

use std::process::ExitCode;
use thalweg_console::INTERRUPTED;

/// How a call ended. A number means the same whichever command ends with it.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Everything is where it was to go.
    Done = 0,
    /// None of the others.
    Other = 1,
    /// Wrong usage: the same call cannot succeed.
    Usage = 2,
    /// The server refuses it or does not have it.
    Refused = 3,
    /// Nobody could be reached who has it, or is to have it.
    Network = 4,
    /// Wrong bytes.
    Bytes = 5,
    /// The disk, or a file on it.
    Disk = 6,
    /// Another process has it.
    Busy = 7,
    /// Later than it was to be.
    Late = 8,
    /// Nobody reads standard output any more, to which the bytes go.
    Unread = 9,
    /// A part of it is there: rsync's number for that.
    Partial = 23,
    /// Ctrl-C or SIGTERM.
    Interrupted = INTERRUPTED,
}

impl Code {
    /// Of a call that came to an end, by its totals.
    pub fn of<T>(totals: &T) -> Self
    where
        for<'a> Self: From<&'a T>,
    {
        totals.into()
    }

    /// Of one that failed, or did not begin, by its error.
    pub fn of_error<E>(error: &E) -> Self
    where
        for<'a> Self: From<&'a E>,
    {
        error.into()
    }

    /// The same, where standard output could not be written.
    pub fn unwritten(self) -> Self {
        if self == Self::Done { Self::Other } else { self }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}
