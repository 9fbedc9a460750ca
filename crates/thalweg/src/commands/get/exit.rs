//! The exit codes, messages and hints of failed downloads.

use super::streams::Unwritable;
pub use crate::commands::exit::Code;
use std::{io, time::Duration};
use thalweg_get::{GetError, GetFailed, MAX_WAIT, PathError};
use thalweg_net::{Cause, DialError};
use thalweg_part::PartError;

/// The code of a failed download.
impl From<&GetError> for Code {
    fn from(error: &GetError) -> Self {
        match error {
            GetError::Url(_) | GetError::Header(..) => Self::Usage,
            GetError::Part(part) => part_code(part),
            GetError::Paths(paths) => paths_code(paths),
            GetError::KeepsChanging(_) | GetError::Mismatch { .. } | GetError::Shown(_) => {
                Self::Bytes
            }
            GetError::OneRelay(_) => Self::Network,
            GetError::Length { .. } => Self::Bytes,
            GetError::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => Self::Unread,
            GetError::Exists(_) | GetError::Output(_) => Self::Disk,
            GetError::SameTarget { .. } => Self::Usage,
            GetError::Interrupted => Self::Interrupted,
            GetError::System(_) => Self::Other,
        }
    }
}

fn part_code(error: &PartError) -> Code {
    match error {
        PartError::Busy(_) => Code::Busy,
        PartError::Digest { .. } | PartError::Piece { .. } | PartError::PastEnd(_) => Code::Bytes,
        PartError::Incomplete { .. } => Code::Network,
        PartError::Unproven(_) => Code::Usage,
        _ => Code::Disk,
    }
}

/// The failure of the direct path decides, if it has failed: relays may fail for reasons of their own.
fn paths_code(paths: &[(String, PathError)]) -> Code {
    let refused = |e: &PathError| match e {
        PathError::Status(status) => status.is_client_error(),
        PathError::Login(_) => true,
        _ => false,
    };
    let direct = paths.iter().find(|(name, _)| name == "direct");
    match direct.or(paths.first()) {
        Some((_, error)) if refused(error) => Code::Refused,
        _ => Code::Network,
    }
}

/// Whether the same request may succeed a little later.
pub fn is_transient(error: &GetError) -> bool {
    match error {
        GetError::Paths(paths) => paths.iter().any(|(_, e)| is_transient_on_path(e)),
        GetError::OneRelay(_) => true,
        _ => false,
    }
}

/// Whether no server was reached, or all that were reached fell silent: other interfaces may reach them.
pub fn is_cut_off(error: &GetError) -> bool {
    let is_unreached = |error: &PathError| {
        matches!(
            error,
            PathError::Dial(_)
                | PathError::Http(_)
                | PathError::NoAnswer(_)
                | PathError::Early(_)
                | PathError::Silent(_)
        )
    };
    matches!(error, GetError::Paths(paths) if paths.iter().all(|(_, error)| is_unreached(error)))
}

/// Whether the failure is transient: a network failure, or a server in trouble. A refused connection or an unknown name
/// would fail again.
fn is_transient_on_path(error: &PathError) -> bool {
    match error {
        PathError::Http(_)
        | PathError::NoAnswer(_)
        | PathError::Early(_)
        | PathError::Silent(_) => true,
        // A server that asks for a longer wait is not retried; the user decides.
        PathError::Busy { wait, .. } => wait.is_none_or(|wait| wait <= MAX_WAIT),
        PathError::Status(status) => {
            status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429)
        }
        PathError::Dial(DialError { cause: Cause::TimedOut(_), .. }) => true,
        PathError::Dial(DialError { cause: Cause::Connect { source, .. }, .. }) => matches!(
            source.kind(),
            io::ErrorKind::TimedOut
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::NetworkDown
        ),
        _ => false,
    }
}

/// The longest wait that a server asked for on any path (`Retry-After`), if any did.
pub fn asked_to_wait(error: &GetError) -> Option<Duration> {
    let GetError::Paths(paths) = error else { return None };
    let wait = |error: &PathError| match error {
        PathError::Busy { wait, .. } => wait.filter(|wait| *wait <= MAX_WAIT),
        _ => None,
    };
    paths.iter().filter_map(|(_, error)| wait(error)).max()
}

/// The reason of the failure, in the words of this command.
pub fn why(failed: &GetFailed) -> String {
    match &failed.error {
        GetError::Output(e) if e.get_ref().is_some_and(|e| e.is::<Unwritable>()) => {
            match e.kind() {
                io::ErrorKind::BrokenPipe => format!("the reader has closed the output: {e}"),
                _ => format!("cannot write to {e}"),
            }
        }
        GetError::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => {
            "the reader of standard output has closed it".to_owned()
        }
        GetError::Output(e) => format!("cannot write to standard output: {e}"),
        _ => failed.to_string(),
    }
}

/// The authentication schemes that a server asked for when it refused a path.
fn wanted_login(error: &GetError) -> Option<&[String]> {
    let GetError::Paths(paths) = error else { return None };
    paths.iter().find_map(|(_, error)| error.login_schemes())
}

/// A hint for a server that accepts these authentication schemes.
fn login_hint(schemes: &[String], logs_in: bool) -> String {
    let is_known = |scheme: &String| {
        ["basic", "digest"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
    };
    if !schemes.is_empty() && !schemes.iter().any(is_known) {
        return format!(
            "get supports only Basic and Digest logins (-u, ~/.netrc), which this server does not accept; send a token with \
             -H 'Authorization: {} …'",
            schemes.iter().find(|s| s.eq_ignore_ascii_case("bearer")).unwrap_or(&schemes[0])
        );
    }
    match logs_in {
        true => "the server refused this user and password".to_owned(),
        false => "the server requires a user and password: -u USER:PASSWORD, or -n with a ~/.netrc"
            .to_owned(),
    }
}

/// Why a partly written stream is not continued.
pub const CUT_SHORT: &str = "part of the file is in the output already, and without a hash it is \
                             unknown whether another source or attempt would continue the same \
                             file: start again with an empty output, or give a hash";

/// What the user can do about the failure, or should know. `logs_in`: the request had a user name and a password.
pub fn hints(failed: &GetFailed, came: u64, logs_in: bool) -> Vec<String> {
    let mut hints = Vec::new();
    let kept = failed.kept;
    let lost = kept.as_bytes() == 0 && came > 0;
    match &failed.error {
        _ if kept.as_bytes() > 0 => {
            hints.push(format!("{kept} are kept; the same command continues from there"));
        }
        GetError::Interrupted if lost => hints.push(
            "nothing is kept: this server sends no ranges, so the same command starts over"
                .to_owned(),
        ),
        _ => {}
    }
    if let GetError::Part(PartError::DiskFull { path, .. } | PartError::NoInodes { path, .. }) =
        &failed.error
        && path.ends_with("(a temporary file)")
    {
        hints.push("set TMPDIR to a directory with room for the temporary file".to_owned());
    }
    if let Some(schemes) = wanted_login(&failed.error) {
        hints.push(login_hint(schemes, logs_in));
    }
    if let GetError::Part(PartError::Busy(_)) = failed.error {
        hints.push("choose another file with -o".to_owned());
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_that_was_asked_for_counts() {
        let busy = |wait: Option<u64>| PathError::Busy {
            status: hyper::StatusCode::SERVICE_UNAVAILABLE,
            wait: wait.map(Duration::from_secs),
        };
        let of = |waits: &[Option<u64>]| {
            let paths = waits.iter().map(|wait| ("direct".to_owned(), busy(*wait)));
            asked_to_wait(&GetError::Paths(paths.collect()))
        };
        assert_eq!(of(&[Some(3), None, Some(7)]), Some(Duration::from_secs(7)));
        assert_eq!(of(&[None]), None);
    }
}
