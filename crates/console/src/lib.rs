//! Output of commands: results to standard output, messages to standard error, and never a panic.
//!
//! In go text and errors; out come lines on the two streams, and errors that say that a result is
//! lost.
//!
//! ```text
//! results  ─► say   ─► standard output ─► an error if it takes no more; none if the reader has left
//! messages ─► note! ─► standard error  ─► never an error
//! an error ─► causes ─► one line with all its causes
//! ```
//!
//! `println!` and `eprintln!` panic if the disk is full or the reader has left. [`say`] and [`note!`]
//! do not; clippy's `print_stdout` and `print_stderr` keep the programs' crates to them.
//!
//! - Nobody reads standard output any more (`EPIPE`, as after `head`): the reader has what it
//!   wants. Printing ends and this is no failure: the command continues, and its exit code tells
//!   how it ended.
//! - Standard output takes no more for another reason (a full disk): the result is lost. This is an
//!   error, and the exit code is not 0.
//! - Standard error fails: its messages are for people, and there is no other place to show them.
//!   This is no failure.

use std::{
    error::Error,
    fmt,
    io::{self, ErrorKind, Write},
};

/// The exit code of a program that Ctrl-C ended, as shells count it: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// The error and its causes, joined by colons. A cause whose text is already there is left out:
/// many errors include the text of their cause.
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

/// Writes a command's data to standard output, whole and at once.
///
/// # Errors
/// The system's, e.g. of a full disk, with words of what failed; none if nobody reads any more.
pub fn say(text: &str) -> io::Result<()> {
    put(&mut io::stdout().lock(), text)
}

/// [`say`] with a line end.
///
/// # Errors
/// As [`say`].
pub fn say_line(line: impl fmt::Display) -> io::Result<()> {
    say(&format!("{line}\n"))
}

/// Writes a line for people to standard error, as [`note!`] does.
pub fn note(line: fmt::Arguments<'_>) {
    // In one piece: other threads and processes write there, too.
    let line = format!("{line}\n");
    // There is no other place to tell it, and the work itself went as it went.
    _ = io::stderr().lock().write_all(line.as_bytes());
}

/// Writes a line for people to standard error; takes what `eprintln!` takes.
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
    fn who_reads_no_further_has_what_it_wants_and_a_full_disk_is_an_error() {
        let mut memory = Vec::new();
        put(&mut memory, "a\n").unwrap();
        assert_eq!(memory, b"a\n");
        put(&mut Broken(ErrorKind::BrokenPipe), "a").unwrap();
        let error = put(&mut Broken(ErrorKind::StorageFull), "a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(error.to_string().starts_with("cannot write to standard output: "));
    }

    #[test]
    fn each_cause_is_told_once() {
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
    fn what_is_buffered_is_flushed() {
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
