//! Output of commands: results to standard output, messages to standard error, without panics.
//!
//! Writes text and errors to the two streams, and returns an error if a result is lost.
//!
//! ```text
//! results  ─► say   ─► standard output ─► an error if it fails, unless its reader has closed it
//! messages ─► note! ─► standard error  ─► never an error
//! an error ─► causes ─► one line with all its causes
//! ```
//!
//! `println!` and `eprintln!` panic if the disk is full or the reader has closed the pipe. [`say`] and [`note!`] do
//! not; clippy's `print_stdout` and `print_stderr` make the programs' crates use them.
//!
//! Printed text may come from others: an oracle's refusal, a file's name, a server's header. Terminals obey control
//! characters, so everything printed here passes through [`plain`] first, and callers need not escape.
//!
//! - Standard output is closed by its reader (`EPIPE`, as after `head`): the reader has what it wants. Printing stops,
//!   and this is not an error: the command continues, and its exit code reports its own result.
//! - Standard output fails for another reason (a full disk): the result is lost. This is an error, and the exit code is
//!   not 0.
//! - Standard error fails: its messages are for people, and there is no other place to show them. This is not an error.

mod escape;

pub use escape::{field, plain};

use std::{
    error::Error,
    fmt,
    io::{self, ErrorKind, IsTerminal as _, Write},
};

/// The exit code of a program ended by Ctrl-C, as in shells: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// The error and its causes, joined by colons. A cause whose text is already included is omitted, since many errors
/// include the text of their cause.
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text = format!("{text}: {told}");
        }
        cause = error.source();
    }
    text
}

/// Writes a command's data to standard output in one call, as [`plain`] text, which leaves JSON valid.
///
/// # Errors
/// The system's error, e.g. of a full disk, with a description of what failed; none if the reader has closed the pipe.
pub fn say(text: &str) -> io::Result<()> {
    put(&mut io::stdout().lock(), &plain(text))
}

/// Writes a line with [`say`].
///
/// # Errors
/// As [`say`].
pub fn say_line(line: impl fmt::Display) -> io::Result<()> {
    say(&format!("{line}\n"))
}

/// Clears the screen and calls [`say`]. If there is no terminal, or NO_COLOR is set, an empty line follows instead.
///
/// # Errors
/// As [`say`].
pub fn say_afresh(text: &str) -> io::Result<()> {
    let is_plain = std::env::var_os("NO_COLOR").is_some() || !stdout_is_terminal();
    let text = plain(text);
    let text = if is_plain { format!("{text}\n") } else { format!("\x1b[H\x1b[2J{text}") };
    put(&mut io::stdout().lock(), &text)
}

/// Writes a message for people to standard error, as [`note!`] does. Indents its further lines, so that none of them
/// looks like a separate message.
pub fn note(line: fmt::Arguments<'_>) {
    put_note(&escape::indented(&plain(&line.to_string())));
}

/// Writes the program's own text, of one or several lines, to standard error and keeps its colours.
pub fn note_styled(text: &str) {
    put_note(&escape::styled(text));
}

/// Whether standard error is a terminal.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Whether standard output is a terminal.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

fn put_note(text: &str) {
    // One call writes the whole text, since other threads and processes write there, too.
    let text = format!("{text}\n");
    // There is no other place to report the error, and it does not affect the command's work.
    _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes a line for people to standard error; takes the arguments of `eprintln!`.
#[macro_export]
macro_rules! note {
    ($($said:tt)*) => { $crate::note(::core::format_args!($($said)*)) };
}

fn put(out: &mut impl Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(io::Error::new(e.kind(), format!("cannot write to standard output: {e}"))),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
        let mut memory = Vec::new();
        put(&mut memory, "a\n").unwrap();
        assert_eq!(memory, b"a\n");
        put(&mut Broken(ErrorKind::BrokenPipe), "a").unwrap();
        let error = put(&mut Broken(ErrorKind::StorageFull), "a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("cannot write to standard output: "));
    }

    #[test]
    fn each_cause_is_printed_once() {
        #[derive(Debug)]
        struct Outer(&'static str, io::Error);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.1)
            }
        }
        let cause = || io::Error::other("no space");
        assert_eq!(causes(&Outer("cannot write", cause())), "cannot write: no space");
        assert_eq!(causes(&Outer("cannot write: no space", cause())), "cannot write: no space");
    }

    #[test]
    fn buffered_output_is_flushed() {
        struct Late;
        impl Write for Late {
            fn write(&mut self, data: &[u8]) -> io::Result<usize> {
                Ok(data.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(ErrorKind::StorageFull.into())
            }
        }
        assert!(put(&mut Late, "a").is_err());
    }
}
