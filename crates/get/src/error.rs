//! Why a path or a whole download failed.

use super::retry_after::{MAX_WAIT, is_bearable, shown};
use hyper::StatusCode;
use std::{fmt, io, ops::Range, time::Duration};
use thalweg_net::{DialError, TlsError, tls};
use thalweg_part::PartError;
use thalweg_paths::url::UrlError;
use thalweg_plan::selection::Failure;
use thalweg_units::{ByteSize, format_duration};
use thiserror::Error;

/// Why a path did not deliver. After a break or a stall it may be tried again.
#[derive(Debug, Error)]
pub enum PathError {
    /// No connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The connection broke, or what came over it is not HTTP.
    #[error("the connection broke: {}", chain(.0))]
    Http(#[source] hyper::Error),
    /// The connection broke before an answer had come, or what came is none.
    #[error("the connection broke: {}", chain(.0))]
    NoAnswer(#[source] hyper::Error),
    /// The received bytes are not an HTTP answer.
    #[error("the server's answer is not HTTP: {0}")]
    NotHttp(NotHttp),
    /// A chunked body that cannot be parsed.
    #[error("the server's chunks cannot be read: {}", chain(.0))]
    Chunks(#[source] hyper::Error),
    /// An invalid `Content-Length`.
    #[error("the server states a length that no file has: `Content-Length: {0}`")]
    BadLength(String),
    /// No TLS connection.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An `https` URL, and no [`super::Web::tls`].
    #[error("TLS was not set up, so https cannot be fetched")]
    NoTls,
    /// Bytes were changed on the way: what TLS protects came out as something else.
    #[error("bytes were altered on the way (TLS noticed; nothing of them was used)")]
    Altered,
    /// Interim answers (1xx) and no end of them.
    #[error("the server sent more than {0} interim answers and no final one")]
    Interim(usize),
    /// The answer ended before the bytes that it promised.
    #[error("the answer ended {0} early")]
    Early(ByteSize),
    /// More bytes than the answer promised.
    #[error("the answer is longer than it said")]
    TooLong,
    /// Nothing came.
    #[error("no byte came for {}", format_duration(rounded(*.0)))]
    Silent(Duration),
    /// A status that ends it.
    #[error("the server answered {0}{advice}", advice = advice(*.0))]
    Status(StatusCode),
    /// 401, with the authentication schemes that the server accepts (RFC 9110 §11.6.1).
    #[error("the server answered 401 Unauthorized{}", wanted(.0))]
    Login(Vec<String>),
    /// The server asks for patience: 429 or 503.
    #[error("the server is busy: it answered {status}{}", wait_for(.wait))]
    Busy {
        /// Which.
        status: StatusCode,
        /// For how long (`Retry-After`, RFC 9110 §10.2.3), if it says.
        wait: Option<Duration>,
    },
    /// More redirects than are followed: 10 of a range, 50 of a plain request.
    #[error("the server redirected more than {0} times")]
    TooManyRedirects(usize),
    /// A redirect to where we cannot go.
    #[error("the server redirected: {0}")]
    Redirect(#[source] UrlError),
    /// A redirect without `Location`.
    #[error("the server answered {0}, a redirect without a Location")]
    Nowhere(StatusCode),
    /// The whole object instead of a range, after ranges were offered.
    #[error("the server sent the whole file instead of a range")]
    NotPartial,
    /// A coding of the transfer that was not asked for and is not taken off.
    #[error("the server sent it in the transfer coding {0}, which was not asked for")]
    TransferCoding(String),
    /// A 206 that does not say how long the object is.
    #[error("the server does not say how long the file is")]
    NoTotal,
    /// A total that is only as long as the range that was asked for proves no end.
    #[error("the file would end just where the range asked for does")]
    DoubtfulEnd,
    /// Less than was asked for, as RFC 9110 §15.3.7 allows; too little to go on so.
    #[error("the server sends no more than {} in an answer", ByteSize::from_bytes(*.0))]
    Clamped(u64),
    /// No `Content-Range` that can be read.
    #[error("the Content-Range field is missing or cannot be read: `{0}`")]
    ContentRange(String),
    /// Another range than asked for.
    #[error("asked for bytes {} to {}, the answer says `{got}`", .asked.start, .asked.end - 1)]
    Range {
        /// What was asked for, end exclusive.
        asked: Range<u64>,
        /// The field.
        got: String,
    },
    /// Length fields that contradict each other.
    #[error("the answer should hold {expected} bytes and says {got}")]
    Length {
        /// By the range.
        expected: u64,
        /// By `Content-Length`.
        got: u64,
    },
    /// A web page in place of the file: a login page on the way, most likely.
    #[error("a web page came instead of the file; is there a login page in between?")]
    Page,
    /// Neither a length nor chunks, and a relay may have cut it.
    #[error("the answer does not mark its end, so a file that this relay cut would look complete")]
    NoEnd,
    /// The object calls itself another one now.
    #[error("the file changed on the server ({0})")]
    Changed(String),
    /// The object has another length now.
    #[error("the file changed on the server ({0})")]
    Resized(String),
    /// Another object than on the other paths.
    #[error("it leads to another file: {0}")]
    Disagrees(String),
    /// Without a validator, bytes of two paths cannot be told to be of one file.
    #[error("the server names no version of the file, so only one path is used")]
    NoValidator,
    /// It only sends the whole file, and nobody confirms it.
    #[error("only this relay answered, and only with a whole file that nothing confirms")]
    Unconfirmed,
}

impl PathError {
    /// What hyper ran into; [`PathError::Altered`] if that is the path's doing.
    pub(super) fn http(error: hyper::Error) -> Self {
        match error {
            error if tls::says_altered(&error) => Self::Altered,
            error if is_unreadable(&error) => Self::Chunks(error),
            error => Self::Http(error),
        }
    }

    /// As [`PathError::http`], before an answer.
    pub(super) fn no_answer(error: hyper::Error) -> Self {
        if tls::says_altered(&error) { Self::Altered } else { Self::NoAnswer(error) }
    }

    /// Whether a request without a range may fare better: what came back is due to the request or the answer, and not to
    /// the way there. Decision 0090 draws the line.
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
                | Self::Unconfirmed
                | Self::NoEnd
                | Self::NoValidator
                | Self::TransferCoding(_)
        )
    }

    /// Whether it may be over soon, whatever is asked for.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::NoAnswer(_) | Self::Silent(_) | Self::Busy { .. } => true,
            Self::Status(status) => status.is_server_error(),
            _ => false,
        }
    }

    /// The status that was the answer, if one was.
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

    /// The answer's fields contradict the question, each other, or the body. A server that
    /// is being replaced does that for a moment.
    pub(super) fn is_contradiction(&self) -> bool {
        matches!(
            self,
            Self::Length { .. } | Self::ContentRange(_) | Self::Range { .. } | Self::TooLong
        )
    }

    /// What this means for the choice of paths: whether it may be tried again.
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
            write!(f, "; that is TLS: try https")?;
        }
        Ok(())
    }
}

/// Whether hyper found a malformed chunk, and not just an early end.
fn is_unreadable(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |e| e.source());
    let is_invalid = |e: &io::Error| {
        matches!(e.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
    };
    causes.any(|e| e.downcast_ref::<io::Error>().is_some_and(is_invalid))
}

/// Why a download failed. The messages say what to try.
#[derive(Debug, Error)]
pub enum GetError {
    /// The URL cannot be fetched.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// A header that `get` must set itself, or that is not HTTP: its name, escaped.
    #[error("the header `{0}` cannot be sent: {1}")]
    Header(String, &'static str),
    /// The file cannot be made.
    #[error(transparent)]
    Part(#[from] PartError),
    /// No path delivers: each with its reason.
    #[error("{}", paths_failed(.0))]
    Paths(Vec<(String, PathError)>),
    /// It changed again after the one restart.
    #[error("the file on the server keeps changing ({0}); try again when it is at rest")]
    KeepsChanging(String),
    /// It would cost what an earlier session kept, or does not fit on the disk,
    /// and one relay alone is no reason to believe it.
    #[error(
        "only the relay {0} answered, and what it says of the file would discard what is kept or does not fit on the disk; try again when the direct path works"
    )]
    OneRelay(String),
    /// Two requests of one call would make the same file.
    #[error(
        "{} is made by download {first} of this call already; download {second} ({url}) needs another name", target.display()
    )]
    SameTarget {
        /// The file.
        target: std::path::PathBuf,
        /// The number of the request that makes it, from 1.
        first: usize,
        /// The number of the request that is refused.
        second: usize,
        /// Its URL.
        url: String,
    },
    /// The server names a file that is there already, and replaces none.
    #[error("{} exists already, and a name that the server chose replaces nothing; move it away, or say the name with -o", .0.display())]
    Exists(std::path::PathBuf),
    /// The bytes fail their digest, also after what relays brought was fetched again.
    #[error("{wrong}; {tried}")]
    Mismatch {
        /// The digests.
        #[source]
        wrong: Box<PartError>,
        /// What was done about it.
        tried: String,
    },
    /// Another length than expected; nothing of it is kept.
    #[error("{} should have {expected} bytes and has {found}: another file, or a cut one", file.display())]
    Length {
        /// The file.
        file: std::path::PathBuf,
        /// As given.
        expected: u64,
        /// As the server says, or as it came.
        found: u64,
    },
    /// The output took no more: nobody reads it, or it is full.
    #[error("the output takes no more bytes: {0}")]
    Output(#[source] std::io::Error),
    /// The rest would be of another object than what the output got.
    #[error(
        "the first {0} bytes were written to the output, and nothing proves that the server still has the same file; start again with an empty output"
    )]
    Shown(u64),
    /// The caller's wish.
    #[error("interrupted")]
    Interrupted,
    /// A thread could not be started, or died.
    #[error("the system refused: {0}")]
    System(#[source] std::io::Error),
}

impl GetError {
    /// Whether the bytes are not what the user expects.
    pub(super) fn is_wrong_hash(&self) -> bool {
        matches!(self, Self::Part(PartError::Digest { .. }) | Self::Mismatch { .. })
    }
}

/// A measured time as people say it.
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
        "{text}, which is longer than get waits ({}): try again then",
        format_duration(MAX_WAIT)
    )
}

/// Formats the authentication schemes that a server accepts.
fn wanted(schemes: &[String]) -> String {
    if schemes.is_empty() { String::new() } else { format!(" (it takes {})", schemes.join(", ")) }
}

/// What to try after a status, where that is not plain.
fn advice(status: StatusCode) -> &'static str {
    match status.as_u16() {
        403 => {
            "; it may want a user name, or another user agent (-A 'Mozilla/5.0'), or the URL may have expired: get a \
             fresh one"
        }
        404 | 410 => "; the file is not there: check the URL",
        407 => "; a proxy in between wants a user name and password",
        408 | 425 | 429 => "; try again later, or with fewer paths",
        451 => "; it is not shown here for legal reasons",
        500..=599 => "; the server is in trouble: try again later",
        _ => "",
    }
}

/// An error with its causes: hyper's own text is only the outermost.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |e| e.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// One line if all say the same, with the path's name if it is one; else a line per path.
fn paths_failed(paths: &[(String, PathError)]) -> String {
    let texts: Vec<String> = paths.iter().map(|(_, e)| e.to_string()).collect();
    match &texts[..] {
        [] => "no path".to_owned(),
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

/// A download that failed, and what was kept of it.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct GetFailed {
    /// Why.
    #[source]
    pub error: GetError,
    /// Bytes that the same call can take over later.
    pub kept: ByteSize,
    /// Paths that delivered other bytes than the server sent, and what was seen of it.
    pub corrupt: Box<[(String, String)]>,
}
