//! Errors of a path and of a whole download.

use super::retry_after::{MAX_WAIT, is_bearable, shown};
use hyper::StatusCode;
use std::{fmt, io, ops::Range, time::Duration};
use thalweg_net::{DialError, TlsError, tls};
use thalweg_part::PartError;
use thalweg_paths::url::UrlError;
use thalweg_plan::selection::Failure;
use thalweg_units::{ByteSize, format_duration};
use thiserror::Error;

/// Why a path did not deliver. After a broken connection or a stall, the path may be tried again.
#[derive(Debug, Error)]
pub enum PathError {
    /// The connection could not be opened.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The connection broke, or the received bytes are not HTTP.
    #[error("the connection broke: {}", chain(.0))]
    Http(#[source] hyper::Error),
    /// The connection broke before an answer was received, or the received bytes are not an answer.
    #[error("the connection broke: {}", chain(.0))]
    NoAnswer(#[source] hyper::Error),
    /// The received bytes are not an HTTP answer.
    #[error("the server's answer is not HTTP: {0}")]
    NotHttp(NotHttp),
    /// The chunked body cannot be parsed.
    #[error("the server's chunked body is malformed: {}", chain(.0))]
    Chunks(#[source] hyper::Error),
    /// The `Content-Length` is invalid.
    #[error("the server sent an invalid length: `Content-Length: {0}`")]
    BadLength(String),
    /// The TLS connection failed.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The URL is `https`, but [`super::HttpSettings::tls`] is `None`.
    #[error("TLS is not set up, so https URLs cannot be fetched")]
    NoTls,
    /// Bytes were altered on the way, as TLS detected.
    #[error("bytes were altered on the way (TLS detected it; none of them were used)")]
    Altered,
    /// The server sent too many interim answers (1xx) without a final one.
    #[error("the server sent more than {0} interim answers and no final one")]
    Interim(usize),
    /// The answer ended before the promised number of bytes.
    #[error("the answer ended {0} early")]
    Early(ByteSize),
    /// The answer is longer than it promised.
    #[error("the answer is longer than announced")]
    TooLong,
    /// No byte was received for this long.
    #[error("no bytes received for {}", format_duration(rounded(*.0)))]
    Silent(Duration),
    /// The server answered with an error status.
    #[error("the server answered {0}{advice}", advice = advice(*.0))]
    Status(StatusCode),
    /// The server answered 401. Contains the authentication schemes that it accepts (RFC 9110 §11.6.1).
    #[error("the server answered 401 Unauthorized{}", wanted(.0))]
    Login(Vec<String>),
    /// The server is busy: 429 or 503.
    #[error("the server is busy: it answered {status}{}", wait_for(.wait))]
    Busy {
        status: StatusCode,
        /// How long to wait (`Retry-After`, RFC 9110 §10.2.3), if the server says so.
        wait: Option<Duration>,
    },
    /// The server sent more redirects than are followed: 10 for a range, 50 for a plain request.
    #[error("the server redirected more than {0} times")]
    TooManyRedirects(usize),
    /// A redirect leads to a URL that cannot be fetched.
    #[error("cannot follow the server's redirect: {0}")]
    Redirect(#[source] UrlError),
    /// A redirect has no `Location`.
    #[error("the server answered {0}, a redirect without a Location")]
    Nowhere(StatusCode),
    /// The server sent the whole object instead of a range, after it had offered ranges.
    #[error("the server sent the whole file instead of a range")]
    NotPartial,
    /// The answer has a transfer coding that was not requested and is not decoded.
    #[error("the server used the transfer coding {0}, which was not requested")]
    TransferCoding(String),
    /// A 206 does not contain the length of the object.
    #[error("the server does not say how long the file is")]
    NoTotal,
    /// The total length equals the end of the requested range, so it may be the length of the part.
    #[error(
        "the stated file length equals the end of the requested range, so it may be the length of that part only"
    )]
    DoubtfulEnd,
    /// The server sent less than requested, as RFC 9110 §15.3.7 allows, and too little to go on with ranges.
    #[error("the server sends at most {} in one answer", ByteSize::from_bytes(*.0))]
    Clamped(u64),
    /// The `Content-Range` is missing or cannot be parsed.
    #[error("the Content-Range field is missing or invalid: `{0}`")]
    ContentRange(String),
    /// The answer contains another range than requested.
    #[error("requested bytes {} to {}, but the answer's Content-Range is `{got}`", .asked.start, .asked.end - 1)]
    Range {
        /// The requested range, end exclusive.
        asked: Range<u64>,
        /// The `Content-Range` of the answer.
        got: String,
    },
    /// The length fields contradict each other.
    #[error("the answer should contain {expected} bytes, but its Content-Length is {got}")]
    Length {
        /// The length according to the range.
        expected: u64,
        /// The length according to `Content-Length`.
        got: u64,
    },
    /// The answer is a web page instead of the file, most likely a login page.
    #[error("the server sent a web page instead of the file; is there a login page in between?")]
    Page,
    /// The answer has neither a length nor chunks, and a relay may have cut it.
    #[error("the answer does not mark its end, so a file that this relay cut would look complete")]
    NoEnd,
    /// The object has another version now.
    #[error("the file changed on the server ({0})")]
    Changed(String),
    /// The object has another length now.
    #[error("the file changed on the server ({0})")]
    Resized(String),
    /// The path leads to another object than the other paths.
    #[error("the path leads to another file: {0}")]
    Disagrees(String),
    /// The mirror's file is not that of the first source, or nothing proves that it is.
    #[error("the mirror is not used: {0}")]
    Mirror(String),
    /// There is no validator, so nothing proves that bytes of two paths belong to the same file.
    #[error(
        "the server sends no usable ETag or Last-Modified for the file, so only one path is used"
    )]
    NoValidator,
    /// The relay only sends the whole file, and nothing confirms it.
    #[error("only this relay answered, and nothing confirms the whole file that it sent")]
    Unconfirmed,
}

impl PathError {
    /// Converts an error of hyper; [`PathError::Altered`] if TLS detected an alteration.
    pub(super) fn http(error: hyper::Error) -> Self {
        match error {
            error if tls::says_altered(&error) => Self::Altered,
            error if is_unreadable(&error) => Self::Chunks(error),
            error => Self::Http(error),
        }
    }

    /// As [`PathError::http`], for an error before an answer was received.
    pub(super) fn no_answer(error: hyper::Error) -> Self {
        if tls::says_altered(&error) { Self::Altered } else { Self::NoAnswer(error) }
    }

    /// Whether a request without a range may succeed: the cause is the request or the answer, not the network path. See
    /// decision 0090.
    pub(super) fn may_be_the_range(&self) -> bool {
        !matches!(
            self,
            Self::Dial(_)
                | Self::Tls(_)
                | Self::NoTls
                | Self::Altered
                | Self::Http(_)
                | Self::Early(_)
                | Self::Interim(_)
                | Self::Disagrees(_)
                | Self::Mirror(_)
                | Self::Unconfirmed
                | Self::NoEnd
                | Self::NoValidator
                | Self::TransferCoding(_)
        )
    }

    /// Whether the error may be temporary, whatever is requested.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::NoAnswer(_) | Self::Silent(_) | Self::Busy { .. } => true,
            Self::Status(status) => status.is_server_error(),
            _ => false,
        }
    }

    /// The status of the answer, if there was one.
    pub(super) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status(status) | Self::Busy { status, .. } | Self::Nowhere(status) => {
                Some(*status)
            }
            Self::Login(_) => Some(StatusCode::UNAUTHORIZED),
            _ => None,
        }
    }

    /// Whether a request without `Accept-Encoding` may succeed: some servers refuse `Accept-Encoding: identity`, and
    /// curl does not send the field. The statuses in `OTHERS` have other causes.
    pub(super) fn may_be_the_identity(&self) -> bool {
        const OTHERS: [u16; 9] = [404, 407, 408, 410, 421, 425, 426, 429, 451];
        let is_error = |s: &StatusCode| s.is_client_error() || s.is_server_error();
        matches!(self, Self::Status(s) if is_error(s) && !OTHERS.contains(&s.as_u16()))
    }

    /// The authentication schemes that the server accepts, if it answered 401.
    pub fn login_schemes(&self) -> Option<&[String]> {
        match self {
            Self::Login(schemes) => Some(schemes),
            _ => None,
        }
    }

    /// Whether the answer's fields contradict the request, each other, or the body. A server that is being replaced may
    /// do that for a moment.
    pub(super) fn is_contradiction(&self) -> bool {
        matches!(
            self,
            Self::Length { .. } | Self::ContentRange(_) | Self::Range { .. } | Self::TooLong
        )
    }

    /// The kind of failure for the path selection, which decides whether the path may be tried again.
    pub(super) fn failure(&self) -> Failure {
        match self {
            Self::Http(_) | Self::NoAnswer(_) | Self::Chunks(_) | Self::Early(_) => Failure::Broken,
            Self::Tls(error) if error.is_broken() => Failure::Broken,
            Self::Silent(_) => Failure::Stalled,
            _ => Failure::Refused,
        }
    }
}

/// The first bytes of an answer that is not HTTP.
#[derive(Debug)]
pub struct NotHttp {
    began: Vec<u8>,
    why: String,
}

impl NotHttp {
    /// `began`: the first bytes received on the connection.
    pub(super) fn new(began: &[u8], why: &hyper::Error) -> Self {
        Self { began: began.to_owned(), why: chain(why) }
    }
}

impl fmt::Display for NotHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it begins with `{}` ({})", self.began.escape_ascii(), self.why)?;
        // The record of a TLS alert or handshake (RFC 8446 §5.1).
        if matches!(self.began[..], [0x15 | 0x16, 3, ..]) {
            write!(f, "; this is TLS: try https")?;
        }
        Ok(())
    }
}

/// Whether hyper found a malformed chunk, and not merely an early end.
fn is_unreadable(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |e| e.source());
    let is_invalid = |e: &io::Error| {
        matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
    };
    causes.any(|e| e.downcast_ref::<io::Error>().is_some_and(is_invalid))
}

/// Why a download failed. The messages suggest what to try.
#[derive(Debug, Error)]
pub enum GetError {
    /// The URL cannot be fetched.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A header that `get` sets itself, or that is not HTTP. Contains its name, escaped.
    #[error("the header `{0}` cannot be sent: {1}")]
    Header(String, &'static str),
    /// The file cannot be created or written.
    #[error(transparent)]
    Part(#[from] PartError),
    /// No path delivers. Contains the reason for each path.
    #[error("{}", paths_failed(.0))]
    Paths(Vec<(String, PathError)>),
    /// The file changed again after the one restart.
    #[error("the file on the server keeps changing ({0}); try again when it no longer changes")]
    KeepsChanging(String),
    /// Only one relay answered, and its answer alone does not justify discarding the bytes of an earlier session or
    /// failing for lack of disk space.
    #[error(
        "only the relay {0} answered; its answer alone is not trusted to discard the kept bytes or to report that the \
         file does not fit on the disk; try again when the direct path works"
    )]
    OneRelay(String),
    /// Two requests of one call have the same target file.
    #[error(
        "{} is already the target of download {first} of this call; download {second} ({url}) needs another name",
        target.display()
    )]
    SameTarget {
        target: std::path::PathBuf,
        /// The number of the first request, from 1.
        first: usize,
        /// The number of the refused request, from 1.
        second: usize,
        /// The URL of the refused request.
        url: String,
    },
    /// The server chose the name of a file that already exists; such a file is not replaced.
    #[error(
        "{} already exists, and no file is replaced under a name that the server chose; move the file away, or give a \
         name with -o", .0.display()
    )]
    Exists(std::path::PathBuf),
    /// The bytes do not match the digest, even after the bytes from relays and mirrors were fetched again.
    #[error("{wrong}; {tried}")]
    Mismatch {
        #[source]
        wrong: Box<PartError>,
        /// What was done to repair the file.
        tried: String,
    },
    /// The file has another length than expected. Nothing of it is kept.
    #[error("{} should have {expected} bytes but has {found}: it is another file or truncated", file.display())]
    Length {
        file: std::path::PathBuf,
        /// The length in the request.
        expected: u64,
        /// The length that the server states, or the received length.
        found: u64,
    },
    /// The output accepts no more bytes: its reader is gone, or it is full.
    #[error("cannot write to the output: {0}")]
    Output(#[source] std::io::Error),
    /// Nothing proves that the remaining bytes belong to the same object as the bytes already written to the output.
    #[error(
        "the first {0} bytes were written to the output, and nothing proves that the server still has the same file; start again with an empty output"
    )]
    Shown(u64),
    /// The caller stopped the download.
    #[error("interrupted")]
    Interrupted,
    /// A thread could not be started, or panicked.
    #[error("a worker thread failed: {0}")]
    System(#[source] std::io::Error),
}

impl GetError {
    /// Whether the bytes do not match a digest.
    pub(super) fn is_wrong_hash(&self) -> bool {
        matches!(self, Self::Part(PartError::Digest { .. }) | Self::Mismatch { .. })
    }
}

/// Rounds a measured time for display: to milliseconds below one second, to tenths of a second above.
fn rounded(time: Duration) -> Duration {
    const TENTH: u64 = 100;
    let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(if millis < 1000 { millis } else { millis / TENTH * TENTH })
}

fn wait_for(wait: &Option<Duration>) -> String {
    let Some(wait) = *wait else { return String::new() };
    let text = format!(" and asks to wait {}", shown(wait));
    if is_bearable(Duration::ZERO, wait) {
        return text;
    }
    format!(
        "{text}, which is longer than the {} that get waits: try again after that",
        format_duration(MAX_WAIT)
    )
}

/// Formats the authentication schemes that a server accepts.
fn wanted(schemes: &[String]) -> String {
    if schemes.is_empty() {
        String::new()
    } else {
        format!(" (accepted schemes: {})", schemes.join(", "))
    }
}

/// Advice for a status, if its meaning is not obvious.
fn advice(status: StatusCode) -> &'static str {
    match status.as_u16() {
        403 => {
            "; it may require a user name or another user agent (-A 'Mozilla/5.0'), or the URL may have expired: get a \
             new one"
        }
        404 | 410 => "; the file is not there: check the URL",
        407 => "; a proxy in between requires a user name and password",
        408 | 425 | 429 => "; try again later, or with fewer paths",
        451 => "; the file is not available here for legal reasons",
        500..=599 => "; the server failed: try again later",
        _ => "",
    }
}

/// The text of an error and of its causes: hyper's own text describes only the outermost one.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |e| e.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// One line if all errors are the same, with the path's name if there is only one path; otherwise one line for each
/// path.
fn paths_failed(paths: &[(String, PathError)]) -> String {
    let texts: Vec<String> = paths.iter().map(|(_, e)| e.to_string()).collect();
    match &texts[..] {
        [] => "no path is available".to_owned(),
        [first, others @ ..] if others.iter().all(|t| t == first) => {
            let name = paths.first().map_or("", |(name, _)| name);
            if others.is_empty() {
                format!("{name}: {first}")
            } else {
                format!("{first} (on every path)")
            }
        }
        _ => {
            let lines = paths.iter().map(|(name, e)| format!("\n  {name}: {e}"));
            format!("no path delivers the file:{}", lines.collect::<String>())
        }
    }
}

/// A failed download, and what was kept of it.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct GetFailed {
    #[source]
    pub error: GetError,
    /// Bytes that a repetition of the same call can resume from.
    pub kept: ByteSize,
    /// Paths that delivered other bytes than the server sent, each with a description.
    pub corrupt: Box<[(String, String)]>,
}
